# Prints which file of a crate imports which, a pair of modules a line, for `tsort`, which finds circles. What a module
# re-exports counts for those who import it from there, not for the module. Tests and what only documentation links do not count.
FNR == 1 {
    here = FILENAME; sub(/^.*src/, "crate", here); sub(/\.rs$/, "", here)
    sub(/\/(mod|lib|main)$/, "", here); gsub("/", "::", here)
    modules[here]; is_conditional = is_import = is_test = 0
}
is_test { next }
{ sub(/\/\/.*/, ""); gsub(/pub\([^)]*\)/, "pub") }
/^ *#\[cfg\((all\()?(test|doc)/ { is_conditional = 1; next }
is_conditional && /^ *(pub )?mod .*[{]/ { is_test = 1; next }
/^ *(pub )?use / { is_import = 1; is_public = /^ *pub /; tree = "" }
is_import {
    tree = tree $0
    if (!/;/) next
    if (!is_conditional) take(tree, is_public)
    is_import = is_conditional = 0
    next
}
{
    is_conditional = 0
    # Paths in code.
    for (rest = $0; match(rest, /[A-Za-z_0-9]+(::[A-Za-z_0-9]+)+/); rest = substr(rest, RSTART + RLENGTH))
        wanted[here " " substr(rest, RSTART, RLENGTH)]
}
END {
    for (want in wanted) {
        split(want, of, " "); module = resolve(of[1], of[2])
        if (module != of[1]) pairs[of[1] " " module]
    }
    for (pair in pairs) print pair
}

# Takes the paths of an import, each group in braces with what stands before it.
function take(tree, is_public,    group, paths, n, i, all, name) {
    sub(/.*use /, "", tree); sub(/;.*/, "", tree); gsub(/ as /, "=", tree); gsub(/ /, "", tree)
    while (match(tree, /[A-Za-z_0-9:]*[{][^{}]*[}]/)) {
        split(substr(tree, RSTART, RLENGTH - 1), group, "{")
        n = split(group[2], paths, ",")
        all = ""
        for (i = 1; i <= n; i++) if (paths[i] != "") all = all (all == "" ? "" : ",") group[1] paths[i]
        tree = substr(tree, 1, RSTART - 1) all substr(tree, RSTART + RLENGTH)
    }
    n = split(tree, paths, ",")
    for (i = 1; i <= n; i++) {
        name = paths[i]; sub(/.*(::|=)/, "", name); sub(/=.*/, "", paths[i]); sub(/::self$/, "", paths[i])
        if (is_public) { exported[here "::" name] = paths[i]; exporter[here "::" name] = here }
        else wanted[here " " paths[i]]
    }
}

# The module that a path leads to from another: that one itself, if it leads out of the crate.
function resolve(from, path,    base, first) {
    base = from; first = path; sub(/::.*/, "", first)
    if (first == "self") path = from substr(path, 5)
    else if (first == "super") {
        while (sub(/^super::/, "", path)) sub(/::[^:]*$/, "", base)
        path = base "::" path
    }
    else if ((from "::" first) in modules) path = from "::" path
    else if (first != "crate") return from
    while (!(path in modules)) {
        if (path in exported) return resolve(exporter[path], exported[path])
        if (!sub(/::[^:]*$/, "", path)) return from
    }
    return path
}
