import Diagnostics
import EventLog
import System

extension IngestService {
    /// Result of an erasure in a running hub.
    public enum Erasure: Sendable, Equatable {
        /// The number of segments that were rewritten.
        case done(segments: Int)
        /// The ingest thread did not respond in time: it waits for the database or the disk, or a large transaction is
        /// in progress.
        case busy
    }

    /// Erases the patches that `plan` stores (`EventLogErasure.writeDown`), while the hub goes on writing and reading.
    ///
    /// Before `plan` runs, the ingest thread begins another segment. All content then lies in sealed segments, to which
    /// nothing is written. A reader with an open segment goes on in the old file.
    public func erase(in logDirectory: String, _ plan: () throws -> Void) throws -> Erasure {
        guard upkeep.seal(within: Limits.sealingPatience) else { return .busy }
        try plan()
        let directory = try DiskDirectory(logDirectory)
        let segments = try EventLogErasure.finishBesideWriter(directory, options: Self.indexOptions())
        Log.shared.info("removed values from the event log", [.path(logDirectory), .count(UInt64(segments))])
        return .done(segments: segments)
    }
}
