import Diagnostics
import EventLog
import Glibc
import Replication
import Synchronization
import System

/// Opening of a resource when the hub starts. If the machine does not allow it now, it is tried again.
///
/// The starting thread tries first. It throws errors that an operator must fix. After other errors, the thread that
/// needs the resource tries again.
final class RetriedOpening<Opened>: @unchecked Sendable {
    // The use guards this value: the starting thread tries before the other thread starts, and does not access the
    // value after that.
    private var opened: Opened?
    private let open: () throws -> Opened
    private let ending = Pulse()

    init(_ open: @escaping () throws -> Opened) { self.open = open }

    /// Tries once. Throws an error that an operator must fix before another attempt can succeed.
    func attempt(_ status: ReplicationStatus) throws {
        assert(opened == nil, "nothing is opened twice")
        do {
            opened = try open()
        } catch {
            guard let code = StartTrouble.code(of: error), StartTrouble.passes(code) else { throw error }
            Log.shared.error("cannot open the event log for now; trying again", [.reason("\(error)")])
            status.troubled(StreamFailure(.diskStall, "the event log cannot be opened: \(StartTrouble.words(code))"))
        }
    }

    /// Tries until the opening succeeds, and returns the result. Returns nil after `end` has been called.
    func take(_ status: ReplicationStatus) -> Opened? {
        var pause = Limits.firstOpeningPause.wholeNanoseconds
        while opened == nil, ending.value == 0 {
            _ = ending.wait(beyond: 0, untilMonotonic: Clock.monotonicNanoseconds() + pause)
            pause = min(pause * 2, Limits.longestOpeningPause.wholeNanoseconds)
            do {
                opened = try open()
                Log.shared.info("the event log is open")
            } catch {
                let words = StartTrouble.code(of: error).map(StartTrouble.words) ?? "\(error)"
                status.troubled(StreamFailure(.diskStall, "the event log cannot be opened: \(words)"))
            }
        }
        defer { opened = nil }
        return opened
    }

    /// Ends the attempts to open the resource.
    func end() { ending.beat() }
}

/// Errors that may disappear without a change of the settings.
private enum StartTrouble {
    static func code(of error: any Error) -> Int32? {
        switch error {
        case let error as SystemError: error.code
        case let failure as EventLogFailure: failure.code
        case EventLogError.failure(let failure): failure.code
        default: nil
        }
    }

    /// True if the error may disappear, because other programs use up the machine's resources or the disk fails for a
    /// while.
    static func passes(_ code: Int32) -> Bool {
        [EIO, EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN, ENOSPC, EDQUOT, ESTALE, ETIMEDOUT].contains(code)
    }

    static func words(_ code: Int32) -> String { SystemError(operation: "", subject: "", code: code).reason }
}

extension Limits {
    /// Pause before the second attempt to open a log. It doubles with each attempt.
    static let firstOpeningPause = Duration.milliseconds(100)
    /// Maximum pause between two attempts.
    static let longestOpeningPause = Duration.seconds(5)
}
