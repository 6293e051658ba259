import Diagnostics
import EventLog
import System

extension IngestService {
    /// Result of an erasure while the hub is running.
    public enum Erasure: Sendable, Equatable {
        /// The erasure has been done. The value is the number of segments that were rewritten.
        case done(segments: Int)
        /// The ingest thread did not respond in time. It waits for the database or the disk, or a large transaction is
        /// being received.
        case busy
    }

    /// Erases the bytes that `plan` has listed with `EventLogErasure.writeDown`, while the hub keeps writing and
    /// reading.
    ///
    /// Before `plan` runs, the ingest thread begins a new segment. All earlier content is then in sealed segments, to
    /// which nothing is appended. A reader that has a replaced segment open continues in the old file.
    public func erase(in logDirectory: String, _ plan: () throws -> Void) throws -> Erasure {
        guard upkeep.seal(within: Limits.sealingPatience) else { return .busy }
        try plan()
        let directory = try DiskDirectory(logDirectory)
        let segments = try EventLogErasure.finishBesideWriter(directory, options: Self.indexOptions())
        Log.shared.info("removed values from the event log", [.path(logDirectory), .count(UInt64(segments))])
        return .done(segments: segments)
    }
}
