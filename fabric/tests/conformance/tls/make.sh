#!/usr/bin/env bash
# Makes the certificates that the tests of TLS use: an authority, a memory node and a client of it, and a stranger.
# They protect nothing, and are valid for a hundred years.
set -euo pipefail
cd "$(dirname "$0")"

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2>/dev/null; }

authority() {
    key "$1"
    openssl req -x509 -new -key "$1.key" -days 36500 -subj "/CN=$1" -out "$1.pem" \
        -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign"
}

# NAME AUTHORITY EXTENSIONS
signed() {
    key "$1"
    openssl req -new -key "$1.key" -subj "/CN=$1" \
        | openssl x509 -req -CA "$2.pem" -CAkey "$2.key" -days 36500 -out "$1.pem" -extfile <(printf '%s\n' "$3") 2>/dev/null
}

authority authority
authority stranger
signed node authority $'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth'
signed elsewhere authority $'subjectAltName=DNS:node.example\nextendedKeyUsage=serverAuth'
signed client authority $'subjectAltName=DNS:client\nextendedKeyUsage=clientAuth'
# Nothing more is signed.
rm authority.key stranger.key
