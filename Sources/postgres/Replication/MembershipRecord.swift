import Bytes
import Change
import Diagnostics
import Synchronization
import System

/// Record of the positions from which the log has all changes of the tables that decide memberships. It is kept across
/// restarts.
///
/// The file is beside the log's segments and is replaced as a whole. New entries are on the disk before the stream or
/// the catalog relies on them. If the file is missing or damaged, earlier memberships are unknown. The hub then makes
/// no decisions by them, and tells clients that they may miss changes.
public final class MembershipRecord: Sendable {
    private struct State {
        var notes = MembershipNotes.ofNewLog
        /// Directory of the file; nil if the record is only in memory.
        var directory: (any StorageDirectory)?
    }

    private let state = Mutex(State())

    static let name = "memberships"
    private static let maximumBytes = UInt64(64 << 20)

    public var notes: MembershipNotes { state.withLock { $0.notes } }

    /// Reads the record that an earlier process wrote.
    ///
    /// - Parameter isNew: true if the log has begun with this process, or is about to begin. The record is then empty.
    func open(in directory: any StorageDirectory, isNew: Bool) {
        let notes = isNew ? .ofNewLog : Self.read(directory)
        state.withLock { $0 = State(notes: notes, directory: directory) }
    }

    private static func read(_ directory: any StorageDirectory) -> MembershipNotes {
        do {
            guard try directory.names().contains(name) else { return .unknown }
            let bytes = try directory.open(name, for: .reading).contents(atMost: maximumBytes)
            if let notes = MembershipNotes(encoded: bytes.rawBytes) { return notes }
            warn("it is damaged")
        } catch {
            warn("\(error)")
        }
        return .unknown
    }

    private static func warn(_ reason: String) {
        Log.shared.warning(
            "cannot read past memberships: clients that resume from a position before now are told that changes may be missing",
            [.path(name), .error(reason)])
    }

    /// Changes the notes. If the change cannot be written to the disk, throws and leaves the notes unchanged.
    public func change(_ body: (inout MembershipNotes) -> Void) throws(SystemError) {
        try state.withLock { state throws(SystemError) in
            var notes = state.notes
            body(&notes)
            guard notes != state.notes else { return }
            if let directory = state.directory { try Self.write(notes, directory) }
            state.notes = notes
        }
    }

    private static func write(_ notes: MembershipNotes, _ directory: any StorageDirectory) throws(SystemError) {
        try directory.replace(name, with: notes.encoded().bytes)
    }
}
