import Bytes
import Catalog
import Diagnostics
import Synchronization
import System

/// Record of changes of a project's publication, for all loops and across restarts. By it the hub reports losses also
/// to clients that return to another process, and losses from a time when no process ran.
public final class PublicationRecord: Sendable {
    private struct State {
        var known = Republications()
        /// Newest catalog that is not recorded yet, because the log's end is not known; nil if there is none.
        var waiting: CatalogSnapshot?
        var version: UInt64 = 0
        var isWritten = true
    }

    private let state: Mutex<State>
    /// Directory in which the record is stored; nil if it is kept in memory only.
    private let directory: (any StorageDirectory)?
    private let writer = BackgroundWriter("publication")
    private let hasFailed = Atomic<Bool>(false)

    static let fileName = "publication"
    private static let maximumBytes = UInt64(64 << 20)

    /// Restores the record of an earlier process. If it cannot be read, the hub tells clients that return to an earlier
    /// position that changes may be missing.
    public init(in directory: (any StorageDirectory)?) {
        self.directory = directory
        var state = State()
        do {
            if let directory, let kept = try Self.read(directory) { state.known = kept }
        } catch {
            state.known = Republications(withUnknownPast: ())
            Log.shared.warning(
                "cannot read which tables left the publication: clients that return to a position before now are told that changes may be missing",
                [.path(Self.fileName), .error("\(error)")])
        }
        self.state = Mutex(state)
    }

    private static func read(_ directory: any StorageDirectory) throws -> Republications? {
        guard try directory.names().contains(fileName) else { return nil }
        let bytes = try directory.open(fileName, for: .reading).contents(atMost: maximumBytes)
        return try Republications(encoded: bytes.rawBytes)
    }

    // MARK: What is known

    /// Records changes of the publication in a new catalog. Any thread may call this. `end` is the log's end; nil until
    /// the log is open.
    func take(_ snapshot: CatalogSnapshot, at end: UInt64?) {
        let isNews = state.withLock { state in
            guard snapshot.version > state.version else { return false }
            state.version = snapshot.version
            state.waiting = snapshot
            return Self.settle(&state, at: end)
        }
        if isNews { writer.wake() }
    }

    /// Returns the offset from which the log has all changes of the table, without a break in its publication. If a
    /// client begins earlier, the hub must report the loss to it once.
    func wholeFrom(_ table: UInt32, at end: UInt64?) -> UInt64 { settled(at: end) { $0.wholeFrom(table) } }

    /// Returns the highest offset at which a table's publication was found to have changed.
    func latest(at end: UInt64?) -> UInt64 { settled(at: end) { $0.latest } }

    private func settled(at end: UInt64?, _ answer: (Republications) -> UInt64) -> UInt64 {
        let (value, isNews) = state.withLock { state in
            let isNews = Self.settle(&state, at: end)
            return (answer(state.known), isNews)
        }
        if isNews { writer.wake() }
        return value
    }

    /// Records the waiting catalog's changes of the publication. Returns true if the record has changed and must be
    /// written.
    private static func settle(_ state: inout State, at end: UInt64?) -> Bool {
        guard let end, let snapshot = state.waiting.take() else { return false }
        let before = state.known
        state.known.take(snapshot.tables, at: end)
        guard state.known != before else { return false }
        state.isWritten = false
        return true
    }

    // MARK: Writing to the disk

    public func start() throws(SystemError) {
        if directory != nil { try writer.start { [self] in flush() } }
    }

    public func stop() { writer.stop() }

    /// Writes the record if it has changed. Returns false if that failed: the next process would then find the same
    /// changes of the publication again.
    @discardableResult
    public func flush() -> Bool {
        guard let directory else { return true }
        let changed = state.withLock { state in
            defer { state.isWritten = true }
            return state.isWritten ? nil : state.known
        }
        guard let changed else { return true }
        do throws(SystemError) {
            try directory.replace(Self.fileName, with: changed.encoded().rawBytes)
            hasFailed.store(false, ordering: .relaxed)
            return true
        } catch {
            state.withLock { $0.isWritten = false }
            if !hasFailed.exchange(true, ordering: .relaxed) {
                Log.shared.warning(
                    "cannot store which tables left the publication; the hub tries again",
                    [.path(Self.fileName), .error("\(error)")])
            }
            return false
        }
    }
}
