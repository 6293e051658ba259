import Diagnostics
import EventLog
import Glibc
import Replication
import Synchronization
import System

/// Opening of a resource at the start of the hub: at once, or as soon as the machine allows.
///
/// The starting thread tries first and reports errors that need a fix. The thread that needs the result retries after
/// other errors.
final class PatientOpening<Opened>: @unchecked Sendable {
    // Guarded by use: the starting thread tries before the other thread starts, and does not access the value
    // afterwards.
    private var opened: Opened?
    private let open: () throws -> Opened
    private let ending = Pulse()

    init(_ open: @escaping () throws -> Opened) { self.open = open }

    /// Tries once. Throws an error that needs a fix before another attempt can succeed.
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

    /// Retries until the opening succeeds, and returns the result; returns nil after `end`.
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

    /// Ends the wait.
    func end() { ending.beat() }
}

/// Errors at the start that may pass without a change of the settings.
private enum StartTrouble {
    static func code(of error: any Error) -> Int32? {
        switch error {
        case let error as SystemError: error.code
        case let failure as EventLogFailure: failure.code
        case EventLogError.failure(let failure): failure.code
        default: nil
        }
    }

    /// True if the error may pass: other programs use up the machine's resources, or the disk fails for a while.
    static func passes(_ code: Int32) -> Bool {
        [EIO, EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN, ENOSPC, EDQUOT, ESTALE, ETIMEDOUT].contains(code)
    }

    static func words(_ code: Int32) -> String { SystemError(operation: "", subject: "", code: code).reason }
}

extension Limits {
    /// First and longest pause between attempts to open a log that could not be opened when the hub started.
    static let firstOpeningPause = Duration.milliseconds(100)
    static let longestOpeningPause = Duration.seconds(5)
}
