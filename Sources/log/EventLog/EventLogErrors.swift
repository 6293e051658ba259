import Glibc
import System

/// Failure of a disk operation. Nothing is lost: data that could not be made durable is still in memory, unpublished.
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

    /// Advice for the operator.
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

/// Damage: bytes in the log that differ from the bytes written there.
public struct EventLogDamage: Error, Sendable, Equatable {
    public let path: String
    public let position: UInt64
    /// Fixed phrase that describes the bytes found there; never data.
    public let finding: String
    /// Number of the damaged segment; nil if the damage is in another file.
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

/// Reason for which a log could not be opened or read further.
public enum EventLogError: Error, Sendable, Equatable {
    case failure(EventLogFailure)
    case damaged(EventLogDamage)
    /// The requested entries were deleted by retention; `oldest` is the first offset still there.
    case outsideRetention(oldest: UInt64)
    case lockedElsewhere(path: String, processID: Int32?)
    /// The log was written from another source than the expected one.
    case foreignSource(expected: UInt64, found: UInt64)
    /// Directory without a log.
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

/// Smallest unit that a reader gives up when it cannot read further. Everything else is served as before.
public enum ReadingTrouble: Sendable, Equatable {
    /// A read that the kernel refuses for now. The reader keeps its place and tries again later.
    case transient
    /// The past of one reader, which retention deleted.
    case past
    /// The rest of one segment, with its number if the segment's own bytes are damaged. Other segments may be readable.
    case segment(UInt64?)
    /// The whole log, for this process: it belongs to another source or another writer.
    case log

    public init(_ error: any Error) {
        switch error {
        case let error as EventLogError: self = error.trouble
        case is SystemError, is EventLogFailure: self = .transient
        // The checksum of these bytes is right, but this program cannot interpret them.
        default: self = .segment(nil)
        }
    }
}

extension EventLogError {
    public var trouble: ReadingTrouble {
        switch self {
        // Any of these reasons may pass once an operator acts.
        case .failure, .missing: .transient
        case .damaged(let damage): .segment(damage.segment)
        case .outsideRetention: .past
        case .lockedElsewhere, .foreignSource: .log
        }
    }
}

/// Runs storage calls and turns their errors into `EventLogFailure`.
func storage<T>(_ body: () throws(SystemError) -> T) throws(EventLogFailure) -> T {
    do { return try body() } catch { throw EventLogFailure(error) }
}

func reading<T>(_ body: () throws(SystemError) -> T) throws(EventLogError) -> T {
    do { return try body() } catch { throw .failure(EventLogFailure(error)) }
}

func failing<T>(_ body: () throws(EventLogFailure) -> T) throws(EventLogError) -> T {
    do { return try body() } catch { throw .failure(error) }
}
