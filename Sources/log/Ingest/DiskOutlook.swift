/// Whether the log will find room for what it is to keep. In: how much is free, now and then. Out: what has become of it.
struct DiskOutlook {
    enum Level {
        case well
        /// Retention allows the log to grow by more than is free.
        case tight
        /// A few segments more, and it is full.
        case short
    }

    struct Sample {
        var free: UInt64
        var log: UInt64
        /// Nil: no limit by size.
        var retention: UInt64?
        var segment: UInt64
    }

    private static let segmentsLeft: UInt64 = 4

    private(set) var level = Level.well

    /// Nil where it is as before.
    mutating func take(_ sample: Sample) -> Level? {
        let before = level
        let growth = sample.retention.map { $0 > sample.log ? $0 - sample.log : 0 } ?? 0
        level =
            sample.free < Self.segmentsLeft * sample.segment ? .short : sample.free < growth ? .tight : .well
        return level == before ? nil : level
    }
}
