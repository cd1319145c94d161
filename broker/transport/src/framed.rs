//! Frames: four bytes that say how long, then that many bytes.
//! Law: memory follows the bytes that came, never the length that was announced; a reader at rest holds no buffer.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The most room a read asks for before the bytes have begun to come.
const FIRST_READ: usize = 64 * 1024;

/// What a reader at rest can take in one read: most requests but Produce are no longer.
const SMALL: usize = 256;

/// The length field before each frame.
const LENGTH_SIZE: usize = 4;

/// Why no further frame can be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length is outside what this side accepts.
    #[error("announced a frame of {length} bytes, {least} to {most} are accepted{}", spoken(*looks_like))]
    Length {
        length: i32,
        least: usize,
        most: usize,
        looks_like: Option<&'static str>,
    },
    /// The other side went away in the middle of a frame.
    #[error("left after {received} of {expected} bytes of a frame")]
    Truncated { received: usize, expected: usize },
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn spoken(looks_like: Option<&'static str>) -> String {
    looks_like.map_or_else(String::new, |what| format!("; it speaks {what}"))
}

/// Cuts what a socket brings into frames.
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    least: usize,
    most: usize,
}

impl FrameReader {
    /// Accepts frames of `least..=most` bytes, the length field not counted.
    pub fn new(least: usize, most: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            least,
            most,
        }
    }

    /// The next frame without its length, or `None` when the other side has ended in good order. Dropping the future loses
    /// nothing: what was read stays here.
    pub async fn next<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
    ) -> Result<Option<Bytes>, FrameError> {
        loop {
            if let Some(frame) = self.cut()? {
                return Ok(Some(frame));
            }
            if self.buffer.is_empty() {
                // At rest: a few bytes of the future wait for the next frame, no buffer on the heap. Small requests come whole.
                let mut first = [0_u8; SMALL];
                let read = from.read(&mut first).await?;
                if read == 0 {
                    return Ok(None);
                }
                self.buffer.extend_from_slice(&first[..read]);
                continue;
            }
            if self.buffer.len() == self.buffer.capacity() {
                self.buffer.reserve(self.room_wanted());
            }
            if from.read_buf(&mut self.buffer).await? == 0 {
                let expected = self.announced().unwrap_or(0).max(0) as usize + LENGTH_SIZE;
                return Err(FrameError::Truncated {
                    received: self.buffer.len(),
                    expected,
                });
            }
        }
    }

    /// How many bytes of the next frame are here already.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// How much memory the reader holds.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    fn announced(&self) -> Option<i32> {
        self.buffer
            .first_chunk::<LENGTH_SIZE>()
            .map(|length| i32::from_be_bytes(*length))
    }

    fn cut(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = self.announced() else {
            return Ok(None);
        };
        let size = usize::try_from(length)
            .ok()
            .filter(|size| (self.least..=self.most).contains(size))
            .ok_or_else(|| FrameError::Length {
                length,
                least: self.least,
                most: self.most,
                looks_like: recognise(&length.to_be_bytes()),
            })?;
        if self.buffer.len() < LENGTH_SIZE + size {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_SIZE);
        let frame = self.buffer.split_to(size).freeze();
        if self.buffer.is_empty() {
            // The frame keeps the memory for as long as it lives; the reader keeps none.
            self.buffer = BytesMut::new();
        }
        Ok(Some(frame))
    }

    /// Room grows with what has come, so a lie about the length costs the liar: what is reserved beyond it is never touched. A
    /// step is sixteenfold at most, so a large frame is moved once or twice while it grows, and little of it.
    fn room_wanted(&self) -> usize {
        let missing = match self.announced() {
            Some(length) => {
                (length.max(0) as usize + LENGTH_SIZE).saturating_sub(self.buffer.len())
            }
            None => LENGTH_SIZE,
        };
        missing.clamp(1, (15 * self.buffer.len()).max(FIRST_READ))
    }
}

/// What somebody who does not speak Kafka speaks, by the first four bytes.
fn recognise(first: &[u8; LENGTH_SIZE]) -> Option<&'static str> {
    match first {
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"DELE" | b"OPTI" | b"PATC" | b"HTTP" | b"PRI " => {
            Some("HTTP")
        }
        [0x16, 0x03, ..] => Some("TLS"),
        b"SSH-" => Some("SSH"),
        _ => None,
    }
}

/// Writes all of `parts`, in one system call where the socket takes it.
pub async fn write_all<W: AsyncWrite + Unpin>(
    to: &mut W,
    parts: impl IntoIterator<Item = Bytes>,
) -> io::Result<()> {
    let mut chain = Chain(parts.into_iter().filter(|part| !part.is_empty()).collect());
    while chain.has_remaining() {
        if to.write_buf(&mut chain).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    to.flush().await
}

/// Several byte strings read as one, none of them copied.
struct Chain(std::collections::VecDeque<Bytes>);

impl Buf for Chain {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |part| part)
    }

    fn chunks_vectored<'a>(&'a self, out: &mut [io::IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, part) in out.iter_mut().zip(&self.0) {
            *slot = io::IoSlice::new(part);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let Some(front) = self.0.front_mut() else {
                return;
            };
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(input: &[u8]) -> Result<Vec<Bytes>, FrameError> {
        let mut reader = FrameReader::new(8, 100 * 1024 * 1024);
        let mut input = input;
        let mut frames = Vec::new();
        while let Some(frame) = reader.next(&mut input).await? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[tokio::test]
    async fn hostile_frames() {
        let rows: [(&[u8], &str); 10] = [
            (&(-1_i32).to_be_bytes(), "announced a frame of -1 bytes"),
            (&0_i32.to_be_bytes(), "announced a frame of 0 bytes"),
            (&7_i32.to_be_bytes(), "announced a frame of 7 bytes"),
            (
                &i32::MAX.to_be_bytes(),
                "announced a frame of 2147483647 bytes",
            ),
            (
                &i32::MIN.to_be_bytes(),
                "announced a frame of -2147483648 bytes",
            ),
            (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP"),
            (b"POST /topics HTTP/1.1\r\n", "it speaks HTTP"),
            (&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00], "it speaks TLS"),
            (&[0, 0, 0, 10, 1, 2, 3], "left after 7 of 14 bytes"),
            (&[0, 0], "left after 2 of 4 bytes"),
        ];
        for (input, expected) in rows {
            let error = read_all(input).await.expect_err(expected).to_string();
            assert!(
                error.contains(expected),
                "{error:?} should say {expected:?}"
            );
        }
    }

    #[tokio::test]
    async fn frames_come_out_whole_however_they_arrive() {
        let frames: Vec<Vec<u8>> = [8_usize, 100, 9000, 70_000, 8]
            .iter()
            .enumerate()
            .map(|(index, size)| vec![index as u8; *size])
            .collect();
        let mut wire = Vec::new();
        for frame in &frames {
            wire.extend_from_slice(&(frame.len() as i32).to_be_bytes());
            wire.extend_from_slice(frame);
        }
        for step in [1_usize, 3, 4096, wire.len()] {
            let (mut sender, mut receiver) = tokio::io::duplex(step);
            let sent = wire.clone();
            let task = tokio::spawn(async move { sender.write_all(&sent).await });
            let mut reader = FrameReader::new(8, 1 << 20);
            for frame in &frames {
                let read = reader.next(&mut receiver).await.expect("whole frame");
                assert_eq!(read.as_deref(), Some(&frame[..]));
            }
            assert!(matches!(reader.next(&mut receiver).await, Ok(None)));
            assert_eq!(reader.capacity(), 0, "at rest it holds nothing");
            task.await.expect("sender").expect("written");
        }
    }

    #[tokio::test]
    async fn an_announced_length_takes_no_memory() {
        let (mut sender, mut receiver) = tokio::io::duplex(1024);
        let mut reader = FrameReader::new(8, 100 * 1024 * 1024);
        sender
            .write_all(&(90 * 1024 * 1024_i32).to_be_bytes())
            .await
            .expect("written");
        sender.write_all(&[0; 500]).await.expect("written");
        // Enough turns for the reader to take all there is.
        for _ in 0..4 {
            tokio::select! {
                biased;
                _ = reader.next(&mut receiver) => panic!("no frame is complete"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(reader.buffered(), 504);
        assert!(reader.capacity() <= 2 * FIRST_READ, "{}", reader.capacity());
    }

    #[tokio::test]
    async fn parts_leave_in_order() {
        let parts = [&b"ab"[..], b"", b"cde", b"f"].map(Bytes::from_static);
        for step in [1_usize, 2, 64] {
            let (mut sender, mut receiver) = tokio::io::duplex(step);
            let sent = parts.clone();
            let task = tokio::spawn(async move { write_all(&mut sender, sent).await });
            let mut read = String::new();
            receiver.read_to_string(&mut read).await.expect("read");
            assert_eq!(read, "abcdef");
            task.await.expect("writer").expect("written");
        }
    }
}
