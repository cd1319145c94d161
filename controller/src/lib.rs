pub mod quorum;
