import Change
import Cluster
import Diagnostics
import EventLog
import Nats
import System

/// Repair of a node whose log the cluster's stream cannot continue, by its files and the servers. It finds the reason as
/// the hub does. The hub of the node must not run while something is repaired.
public struct ClusterRepair {
    /// Repair that an operator can choose.
    public enum Repair: String, Sendable, CaseIterable {
        /// The log is moved aside, and the node begins with what the stream has.
        case moveLog = "move_log"
        /// The log stays, and a new stream continues it.
        case keepLog = "keep_log"
    }

    public struct Diagnosis: Sendable, Equatable {
        /// Reason why the node cannot take part; nil if nothing is wrong.
        public var refusal: ClusterRefusal?
        /// The reason in words.
        public var words: String
        /// Position of the end of the node's log; nil if it has none.
        public var logEnd: EventLogPosition?
        public var streamName: String
        /// Sequences of the stream's first and last messages; nil if the servers have no stream.
        public var stream: ClosedRange<UInt64>?
    }

    /// Error that ends a repair before anything was changed.
    public enum Failure: Error, Sendable, CustomStringConvertible {
        case servers(String)
        case files(String)
        /// The hub runs.
        case running(String)
        /// The stream has messages, and would not continue the log.
        case streamInTheWay(String)

        public var description: String {
            switch self {
            case .servers(let words): "cannot ask the NATS servers: \(words)"
            case .files(let words): words
            case .running(let words): words
            case .streamInTheWay(let stream): "the stream \(stream) has messages, and does not continue this log"
            }
        }
    }

    private let settings: ClusterSettings
    private let dataDirectory: String
    private let names: ClusterNames

    public init(_ settings: ClusterSettings, dataDirectory: String) {
        self.settings = settings
        self.dataDirectory = dataDirectory
        names = ClusterNames(key: settings.key)
    }

    private var logDirectory: String { IngestService.Settings.logDirectory(dataDirectory) }

    // MARK: Finding the reason

    /// Finds out if the stream can continue the node's log. It changes nothing, and a hub may run meanwhile.
    public func diagnose() throws(Failure) -> Diagnosis {
        let stream = try stream()
        let (content, last) = try files()
        let logEnd = last.map { EventLogPosition(epoch: $0.epoch, offset: $0.endOffset) }
        var found = Diagnosis(
            words: "", logEnd: logEnd, streamName: names.stream,
            stream: stream.map { min($0.first, $0.last)...$0.last })
        do throws(Replica.Diverged) {
            if stream == nil, content.mayMakeStream(hasLog: logEnd != nil) {
                found.words = "the servers have no stream yet: the hub makes it when it starts"
                return found
            }
            let (mark, end) = try content.place(hasLog: logEnd != nil, in: stream)
            if let stream, let logEnd, mark.sequence == stream.last, end != .unknown, logEnd.epoch == end.place.epoch,
                logEnd.offset > end.place.offset
            {
                throw Replica.Diverged(words: "the log stands at \(logEnd), and the stream ends at \(end.place)")
            }
            found.words = "the stream can continue this node's log"
        } catch {
            (found.refusal, found.words) = (error.kind, error.words)
        }
        return found
    }

    private func stream() throws(Failure) -> ClusterStream? {
        do {
            let jet = try JetStream(settings.servers, bell: Wake(), maximumBytes: 1 << 20)
            return try ClusterStream.find(jet, names)
        } catch {
            throw .servers("\(error)")
        }
    }

    /// Reads the file that says how far the log has come, and the log's last segment.
    private func files() throws(Failure) -> (ReplicaFile.Content, SegmentSummary?) {
        guard Directories.isDirectory(logDirectory) else { return (.none, nil) }
        do {
            let directory = try DiskDirectory(logDirectory)
            let content = try ReplicaFile(directory: directory).read()
            do throws(EventLogError) {
                let last = try EventLogReader.segments(in: directory).last
                return (content, last.flatMap { $0.lastLSN == 0 ? nil : $0 })
            } catch {
                guard case .missing = error else { throw error }
                return (content, nil)
            }
        } catch {
            throw .files("cannot read the event log \(logDirectory): \(error)")
        }
    }

    // MARK: Repairing

    /// Moves the log aside. The node then begins with what the stream has. Returns the path to which it was moved.
    public func moveLog() throws(Failure) -> String {
        let lock = try lock()
        defer { withExtendedLifetime(lock) {} }
        let digits = WallTime.now().description.prefix(19).filter { $0.isNumber || $0 == "T" }
        let path = "\(logDirectory).moved-\(digits)Z"
        do throws(SystemError) {
            try Directories.move(logDirectory, to: path)
        } catch {
            throw .files("cannot move the event log: \(error)")
        }
        return path
    }

    /// Makes the log that of a node which has not belonged to a cluster yet: when the hub starts, a new stream continues
    /// it. Only one node of a cluster may do this.
    public func keepLog() throws(Failure) {
        let lock = try lock()
        defer { withExtendedLifetime(lock) {} }
        if let stream = try stream(), stream.last > 0 { throw .streamInTheWay(names.stream) }
        do throws(SystemError) {
            let directory = try DiskDirectory(logDirectory)
            guard try directory.openIfThere(ReplicaFile.name) != nil else { return }
            try directory.remove(ReplicaFile.name)
            try directory.sync()
        } catch {
            throw .files("cannot change the event log: \(error)")
        }
    }

    private func lock() throws(Failure) -> any StorageLock {
        do {
            return try IngestService.lock(dataDirectory)
        } catch let error as EventLogError {
            if case .lockedElsewhere = error { throw .running("\(error)") }
            throw .files("\(error)")
        } catch {
            throw .files("\(error)")
        }
    }
}
