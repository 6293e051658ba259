/// Forecast of whether the disk has room for the log. The forecast takes samples of the free space and returns changes
/// of level.
struct DiskOutlook {
    enum Level {
        case well
        /// The free space is smaller than the growth that retention allows.
        case tight
        /// The free space is less than a few segments.
        case short
    }

    struct Sample {
        var free: UInt64
        var log: UInt64
        /// Maximum size of the log; nil if there is none.
        var retention: UInt64?
        var segment: UInt64
    }

    private static let segmentsLeft: UInt64 = 4

    private(set) var level = Level.well

    /// Takes a sample; returns the new level, or nil if the level is unchanged.
    mutating func take(_ sample: Sample) -> Level? {
        let before = level
        let growth = sample.retention.map { $0 > sample.log ? $0 - sample.log : 0 } ?? 0
        level =
            sample.free < Self.segmentsLeft * sample.segment ? .short : sample.free < growth ? .tight : .well
        return level == before ? nil : level
    }
}
