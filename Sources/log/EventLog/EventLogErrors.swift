import Glibc
import System

/// Failure of a disk operation. Nothing is lost: data that did not become durable are still in memory and not
/// published.
public struct EventLogFailure: Error, Sendable, Equatable {
    public let operation: String
    public let path: String
    public let code: Int32

    public init(operation: String, path: String, code: Int32) {
        self.operation = operation
        self.path = path
        self.code = code
    }

    init(_ error: SystemError) {
        self.init(operation: error.operation, path: error.subject, code: error.code)
    }

    /// Advice for an operator.
    public var hint: String {
        switch code {
        case ENOSPC, EDQUOT: "free some space or lower the retention; the hub continues by itself when there is room"
        case EIO: "the disk reports an error; check it (dmesg, smartctl) before you write more to it"
        case EROFS: "the file system became read-only; remount it for writing"
        case EACCES, EPERM: "let this user read and write the log directory"
        case EMFILE, ENFILE: "raise the limit of open files"
        case ENOENT: "a file of the log was removed by someone else"
        default: "see the kernel's log for the reason"
        }
    }
}

extension EventLogFailure: CustomStringConvertible {
    public var description: String {
        "\(SystemError(operation: operation, subject: path, code: code)) (\(hint))"
    }
}

/// Damage of the log: some bytes differ from those that were written.
public struct EventLogDamage: Error, Sendable, Equatable {
    public let path: String
    public let position: UInt64
    /// Fixed phrase that describes what was found at the position. It never contains data.
    public let finding: String
    /// Number of the damaged segment; nil if another file is damaged.
    public let segment: UInt64?

    public init(path: String, position: UInt64, finding: String, segment: UInt64? = nil) {
        self.path = path
        self.position = position
        self.finding = finding
        self.segment = segment
    }
}

extension EventLogDamage: CustomStringConvertible {
    public var description: String {
        "\(path) is damaged at byte \(position): \(finding) "
            + "(run 'tidewire log verify'; nothing was changed, later entries may still be readable)"
    }
}

/// Reason why the log could not be opened or read.
public enum EventLogError: Error, Sendable, Equatable {
    case failure(EventLogFailure)
    case damaged(EventLogDamage)
    /// Retention has deleted the requested entries. `oldest` is the first offset that the log still has.
    case outsideRetention(oldest: UInt64)
    case lockedElsewhere(path: String, processID: Int32?)
    /// The log was written from another source than the expected one.
    case foreignSource(expected: UInt64, found: UInt64)
    /// The directory contains no log.
    case missing(path: String)
}

extension EventLogError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .failure(let failure): failure.description
        case .damaged(let damage): damage.description
        case .outsideRetention(let oldest): "these entries were deleted by retention; the oldest kept is @\(oldest)"
        case .lockedElsewhere(let path, let processID):
            "the event log \(path) is in use by " + (processID.map { "process \($0)" } ?? "another process")
        case .foreignSource(let expected, let found):
            "the event log belongs to source \(found), not \(expected): use another directory for another database"
        case .missing(let path): "there is no event log in \(path)"
        }
    }
}

/// Extent of what a reader must give up after an error. The hub serves everything else as before.
public enum ReadingTrouble: Sendable, Equatable {
    /// No data: the kernel refuses a read for now. The reader keeps its position and tries again later.
    case transient
    /// The past of one reader, because retention has deleted it.
    case past
    /// The rest of one segment. The number is nil unless the segment's own bytes are damaged. Other segments may be
    /// readable.
    case segment(UInt64?)
    /// The whole log, for this process. It belongs to another source, or another process is writing it.
    case log

    public init(_ error: any Error) {
        switch error {
        case let error as EventLogError: self = error.trouble
        case is SystemError, is EventLogFailure: self = .transient
        // The checksum of the bytes is correct, but this program cannot interpret them.
        default: self = .segment(nil)
        }
    }
}

extension EventLogError {
    public var trouble: ReadingTrouble {
        switch self {
        // An operator may be able to remove the cause, so reading may succeed later.
        case .failure, .missing: .transient
        case .damaged(let damage): .segment(damage.segment)
        case .outsideRetention: .past
        case .lockedElsewhere, .foreignSource: .log
        }
    }
}

/// Runs a storage call and converts its error to `EventLogFailure`.
func storage<T>(_ body: () throws(SystemError) -> T) throws(EventLogFailure) -> T {
    do { return try body() } catch { throw EventLogFailure(error) }
}

func reading<T>(_ body: () throws(SystemError) -> T) throws(EventLogError) -> T {
    do { return try body() } catch { throw .failure(EventLogFailure(error)) }
}

func failing<T>(_ body: () throws(EventLogFailure) -> T) throws(EventLogError) -> T {
    do { return try body() } catch { throw .failure(error) }
}
