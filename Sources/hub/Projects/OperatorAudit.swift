import Diagnostics
import EventLog
import Settings
import Synchronization
import System

/// Record of operators' requests in the audit file of a project's log. Each line is on the disk before its request is
/// carried out.
///
/// Reads have a file of their own. The same read of the same operator is noted once a minute, and an operator has a limited
/// number of such lines a minute; a line says how many reads before it were not noted.
final class OperatorAudit: Sendable {
    private struct Reads {
        /// Time until which the same read is not noted again.
        var quietUntil: [String: UInt64] = [:]
        /// Lines of the minute at hand.
        var lines = 0
        var unnoted = 0
        var minuteEnds: UInt64 = 0
    }

    private let reads = Mutex<[String: Reads]>([:])
    /// Directory for a project that has no log yet.
    private let fallback: String
    private static let behalf = "operators' API"

    init(fallback: String) { self.fallback = fallback }

    /// Records an action. Throws if that fails, so that it does not happen.
    func note(
        _ action: AuditNote.Action, _ what: String, by operator: Operator, because reason: String = "", log: String
    ) throws(AuditFailure) {
        try trail(log, AuditTrail.name).append(line(action, what, `operator`, reason))
    }

    /// Records a read, unless the same read was recorded a moment ago.
    func read(
        _ what: String, by operator: Operator, log: String, atMonotonic now: UInt64 = Clock.monotonicNanoseconds()
    ) throws(AuditFailure) {
        guard let unnoted = admit(what, `operator`.subject, now) else { return }
        let remark = unnoted == 0 ? "" : " (\(unnoted) reads before this were not noted)"
        try trail(log, AuditTrail.readsName).append(
            line(.read, what + remark, `operator`, ""), rotatingTo: AuditTrail.formerReadsName)
    }

    /// Returns how many reads of the operator were not noted before this one; nil if this one is not noted either.
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
