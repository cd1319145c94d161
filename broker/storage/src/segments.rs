//! The segments of one log, oldest first: which one holds an offset, and which ones go.
//! Law: there is always at least one, the last is the active one, and each begins at or after the end of the one before.

use std::io;

use kuorum_protocol::Offset;

use crate::dir::Dir;
use crate::segment::{INDEX, LOG, Segment, TIME_INDEX, file_name};

#[derive(Debug)]
pub(crate) struct Segments<D: Dir> {
    list: Vec<Segment<D>>,
}

impl<D: Dir> Segments<D> {
    /// `list` must not be empty.
    pub(crate) fn new(list: Vec<Segment<D>>) -> Self {
        assert!(!list.is_empty(), "a log has an active segment");
        Self { list }
    }

    /// The active segment; none in a log that failed while it was being emptied.
    pub(crate) fn last(&self) -> Option<&Segment<D>> {
        self.list.last()
    }

    pub(crate) fn active(&self) -> &Segment<D> {
        self.list.last().expect("a log has an active segment")
    }

    pub(crate) fn active_mut(&mut self) -> &mut Segment<D> {
        self.list.last_mut().expect("a log has an active segment")
    }

    pub(crate) fn get(&self, at: usize) -> &Segment<D> {
        &self.list[at]
    }

    pub(crate) fn first(&self) -> &Segment<D> {
        &self.list[0]
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Segment<D>> {
        self.list.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.list.iter().map(|segment| segment.size).sum()
    }

    /// The segments that may hold `offset` or what comes after it.
    pub(crate) fn from(&self, offset: Offset) -> &[Segment<D>] {
        let after = self.list.partition_point(|segment| segment.base <= offset);
        &self.list[after.saturating_sub(1)..]
    }

    pub(crate) fn push(&mut self, segment: Segment<D>) {
        assert!(segment.base >= self.active().next, "a log has no overlaps");
        self.list.push(segment);
    }

    /// Removes the files of the segments that begin at or after `base`, newest first, so that whatever of it survives a
    /// power cut leaves a log without a hole. Removes all of them if `base` is that low.
    pub(crate) fn remove_from(&mut self, dir: &D, base: Offset) -> io::Result<usize> {
        let mut removed = 0;
        while self.list.last().is_some_and(|segment| segment.base >= base) {
            let segment = self.list.pop().expect("it was there a moment ago");
            remove_files(dir, segment.base)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Puts `segment` into a list that `remove_from` has emptied.
    pub(crate) fn restart_with(&mut self, segment: Segment<D>) {
        assert!(self.list.is_empty(), "only an empty log is restarted");
        self.list.push(segment);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Removes the `count` oldest segments, oldest first; the active one always stays.
    pub(crate) fn remove_oldest(&mut self, dir: &D, count: usize) -> io::Result<()> {
        for segment in self.list.drain(..count.min(self.list.len() - 1)) {
            remove_files(dir, segment.base)?;
        }
        Ok(())
    }
}

/// Removes a segment's three files, the log last: an index without a log is an orphan that opening removes.
pub(crate) fn remove_files<D: Dir>(dir: &D, base: Offset) -> io::Result<()> {
    for extension in [INDEX, TIME_INDEX, LOG] {
        match dir.remove(&file_name(base, extension)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
