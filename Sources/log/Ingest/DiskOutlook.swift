/// Forecast that tells if the disk has room for the log. It evaluates samples of the free space and reports changes of
/// the level.
struct DiskOutlook {
    enum Level {
        case well
        /// The disk has less free space than the log may still grow under the retention settings.
        case tight
        /// The disk has free space for only a few segments.
        case short
    }

    struct Sample {
        /// Free space of the disk in bytes.
        var free: UInt64
        /// Size of the log in bytes.
        var log: UInt64
        /// Maximum size of the log in bytes; nil if there is none.
        var retention: UInt64?
        /// Maximum size of a segment in bytes.
        var segment: UInt64
    }

    private static let segmentsLeft: UInt64 = 4

    private(set) var level = Level.well

    /// Evaluates a sample of the free space. Returns the new level; nil if the level is unchanged.
    mutating func take(_ sample: Sample) -> Level? {
        let before = level
        let growth = sample.retention.map { $0 > sample.log ? $0 - sample.log : 0 } ?? 0
        level =
            sample.free < Self.segmentsLeft * sample.segment ? .short : sample.free < growth ? .tight : .well
        return level == before ? nil : level
    }
}
