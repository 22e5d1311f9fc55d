//! Zstd files: any number of frames, with their checksums verified if present.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// The decompressed content of a zstd file.
pub(crate) struct ZstdReader<R: BufRead> {
    state: State<R>,
}

enum State<R: BufRead> {
    /// At the border of two frames, or at an end of the file. The decoder is kept, because its
    /// tables are large.
    Between(R, Box<FrameDecoder>),
    Within(Box<StreamingDecoder<R, FrameDecoder>>),
    /// After an error: the input's position is unknown.
    Broken,
}

impl<R: BufRead> ZstdReader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { state: State::Between(input, Box::new(FrameDecoder::new())) }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.state, State::Broken) {
                State::Broken => return Err(io::Error::other("the decoder stopped at an earlier error")),
                State::Between(mut input, decoder) => {
                    if input.fill_buf()?.is_empty() {
                        self.state = State::Between(input, decoder);
                        return Ok(0);
                    }
                    let stream =
                        StreamingDecoder::new_with_decoder(input, *decoder).map_err(io::Error::other)?;
                    self.state = State::Within(Box::new(stream));
                }
                State::Within(mut stream) => {
                    let n = stream.read(buffer)?;
                    if n > 0 {
                        self.state = State::Within(stream);
                        return Ok(n);
                    }
                    let (input, decoder) = stream.into_parts();
                    let stored = decoder.get_checksum_from_data();
                    if stored.is_some() && stored != decoder.get_calculated_checksum() {
                        return Err(io::Error::other("the frame's checksum does not match its content"));
                    }
                    self.state = State::Between(input, Box::new(decoder));
                }
            }
        }
    }
}
