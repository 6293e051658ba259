import Diagnostics
import EventLog
import Settings
import Synchronization
import System

/// Writer of operators' requests to the audit file of a project's log. Each request is on the disk before the hub
/// carries it out.
///
/// Reads have a file of their own. An operator's repeated equal read is recorded once a minute, and an operator has a
/// limited number of such lines a minute. The next line states how many reads before it were not recorded.
final class OperatorAudit: Sendable {
    private struct Reads {
        /// Monotonic time in nanoseconds for each read, until which an equal read is not recorded again.
        var quietUntil: [String: UInt64] = [:]
        /// Number of lines written in the current minute.
        var lines = 0
        var unnoted = 0
        var minuteEnds: UInt64 = 0
    }

    private let reads = Mutex<[String: Reads]>([:])
    /// Directory of the audit files for a project that has no log yet.
    private let fallback: String
    private static let behalf = "operators' API"

    init(fallback: String) { self.fallback = fallback }

    /// Writes an action to the audit file. Throws if that fails; the caller must then not carry out the action.
    func note(
        _ action: AuditNote.Action, _ what: String, by operator: Operator, because reason: String = "", log: String
    ) throws(AuditFailure) {
        try trail(log, AuditTrail.name).append(line(action, what, `operator`, reason))
    }

    /// Writes a read to the audit file, unless an equal read was recorded within the last minute or the operator's
    /// limit is reached.
    func read(
        _ what: String, by operator: Operator, log: String, atMonotonic now: UInt64 = Clock.monotonicNanoseconds()
    ) throws(AuditFailure) {
        guard let unnoted = admit(what, `operator`.subject, now) else { return }
        let remark = unnoted == 0 ? "" : " (\(unnoted) reads before this were not noted)"
        try trail(log, AuditTrail.readsName).append(
            line(.read, what + remark, `operator`, ""), rotatingTo: AuditTrail.formerReadsName)
    }

    /// Returns the number of the operator's reads that were not recorded since the last line; nil if this read must not
    /// be recorded either.
    private func admit(_ what: String, _ subject: String, _ now: UInt64) -> Int? {
        reads.withLock { all in
            if all.count >= Limits.maximumAuditedOperators, all[subject] == nil { all.removeAll() }
            var reads = all[subject] ?? Reads()
            defer { all[subject] = reads }
            if now >= reads.minuteEnds {
                reads.minuteEnds = now + Limits.auditedReadPause.wholeNanoseconds
                reads.lines = 0
                reads.quietUntil = reads.quietUntil.filter { $0.value > now }
            }
            guard reads.quietUntil[what] == nil || reads.quietUntil[what, default: 0] <= now,
                reads.lines < Limits.maximumAuditedReads
            else {
                reads.unnoted += 1
                return nil
            }
            reads.quietUntil[what] = now + Limits.auditedReadPause.wholeNanoseconds
            reads.lines += 1
            assert(reads.lines <= Limits.maximumAuditedReads, "an operator's reads have a limited number of lines")
            defer { reads.unnoted = 0 }
            return reads.unnoted
        }
    }

    private func trail(_ log: String, _ name: String) throws(AuditFailure) -> AuditTrail {
        do throws(SystemError) {
            return AuditTrail(in: try DiskDirectory(Directories.isDirectory(log) ? log : fallback), name: name)
        } catch {
            throw .failed("\(error)")
        }
    }

    private func line(
        _ action: AuditNote.Action, _ what: String, _ operator: Operator, _ reason: String
    ) -> AuditNote {
        AuditNote(
            time: Clock.unixMicroseconds(), action: action, user: ProcessUser.name(), behalf: Self.behalf,
            command: Self.behalf, what: what, subject: Self.name(`operator`), reason: reason)
    }

    /// Name of the operator in the audit.
    static func name(_ operator: Operator) -> String {
        `operator`.subject.isEmpty ? "a token without sub, \(`operator`.role.rawValue)" : `operator`.subject
    }
}
