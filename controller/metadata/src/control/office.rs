//! stub
use crate::image::MetadataImage;
use crate::record::RecordBatch;
use std::collections::BTreeMap;

/// The batch by which a controller takes office.
pub fn take_office(
    _image: &MetadataImage,
    _controller_id: u64,
    _file: &BTreeMap<String, String>,
) -> RecordBatch {
    todo!()
}
