import Diagnostics
import EventLog
import System

extension IngestService {
    /// What came of an erasure beside the running hub.
    public enum Erasure: Sendable, Equatable {
        /// So many segments were made anew.
        case done(segments: Int)
        /// The ingest thread did not come to it: it waits for the database or the disk, or a large transaction is under way.
        case busy
    }

    /// Takes out of the log what `plan` writes down (`EventLogErasure.writeDown`), while the hub goes on writing and reading.
    ///
    /// Before the plan is made, the ingest thread begins another segment: all that was written lies in sealed ones then,
    /// which nobody writes to. Who has a segment open reads on in the file that it was.
    public func erase(in logDirectory: String, _ plan: () throws -> Void) throws -> Erasure {
        guard upkeep.seal(within: Limits.sealingPatience) else { return .busy }
        try plan()
        let directory = try DiskDirectory(logDirectory)
        let segments = try EventLogErasure.finishBesideWriter(directory, options: Self.indexOptions())
        Log.shared.info("values were removed from the event log", [.path(logDirectory), .count(UInt64(segments))])
        return .done(segments: segments)
    }
}
