import Diagnostics
import EventLog
import Settings
import Synchronization
import System

/// Writer of operators' requests to the audit file of a project's log. Each request is on the disk before the hub
/// carries it out.
///
/// Reads have a file of their own. An operator's repeated equal read is recorded once a minute, and an operator has a
/// limited number of such lines a minute; the last of them says that it is the last. The next line states how many reads
/// before it were not recorded. If there is no next line, `end` writes the number.
final class OperatorAudit: Sendable {
    private struct Reads {
        /// Monotonic time in nanoseconds for each read, until which an equal read is not recorded again.
        var quietUntil: [String: UInt64] = [:]
        /// Number of lines written in the current minute.
        var lines = 0
        /// Reads that were not recorded since the last line, by the directory of the log.
        var unnoted: [String: Int] = [:]
        var minuteEnds: UInt64 = 0
        var asker: Operator
    }

    /// Lines that are owed for reads that were not recorded: their number, log and operator.
    private typealias Debt = (count: Int, log: String, asker: Operator)

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
        let (admitted, forgotten) = admit(what, `operator`, log, now)
        for debt in forgotten { try pay(debt) }
        guard let (unnoted, isLast) = admitted else { return }
        var remarks: [String] = []
        if unnoted > 0 { remarks.append("\(unnoted) reads before this were not noted") }
        if isLast { remarks.append("the last line of this minute: further reads are only counted") }
        try append(what + (remarks.isEmpty ? "" : " (\(remarks.joined(separator: "; ")))"), `operator`, log)
    }

    /// Writes how many reads were not recorded after their operators' last lines.
    func end() {
        let owed = reads.withLock { all in
            defer { all = [:] }
            return all.keys.sorted().flatMap { Self.debts(of: all[$0]) }
        }
        for debt in owed {
            do throws(AuditFailure) {
                try pay(debt)
            } catch {
                Log.shared.error(
                    "cannot write how many reads of an operator were not recorded",
                    [.user(debt.asker.subject), .reason("\(debt.count) reads: \(error)")])
            }
        }
    }

    private static func debts(of reads: Reads?) -> [Debt] {
        guard let reads else { return [] }
        return reads.unnoted.keys.sorted().map { (reads.unnoted[$0, default: 0], $0, reads.asker) }
    }

    private func pay(_ debt: Debt) throws(AuditFailure) {
        try append("\(debt.count) reads before this were not noted", debt.asker, debt.log)
    }

    private func append(_ what: String, _ operator: Operator, _ log: String) throws(AuditFailure) {
        try trail(log, AuditTrail.readsName).append(
            line(.read, what, `operator`, ""), rotatingTo: AuditTrail.formerReadsName)
    }

    /// Returns the number of the operator's reads in the log that were not recorded since the last line, and whether
    /// this line is the minute's last; nil if this read must not be recorded either. Also returns what is owed for
    /// operators that were forgotten.
    private func admit(
        _ what: String, _ asker: Operator, _ log: String, _ now: UInt64
    ) -> (admitted: (unnoted: Int, isLast: Bool)?, forgotten: [Debt]) {
        reads.withLock { all in
            var forgotten: [Debt] = []
            if all.count >= Limits.maximumAuditedOperators, all[asker.subject] == nil {
                forgotten = all.keys.sorted().flatMap { Self.debts(of: all[$0]) }
                all.removeAll()
            }
            var reads = all[asker.subject] ?? Reads(asker: asker)
            defer { all[asker.subject] = reads }
            if now >= reads.minuteEnds {
                reads.minuteEnds = now + Limits.auditedReadPause.wholeNanoseconds
                reads.lines = 0
                reads.quietUntil = reads.quietUntil.filter { $0.value > now }
            }
            guard reads.quietUntil[what] == nil || reads.quietUntil[what, default: 0] <= now,
                reads.lines < Limits.maximumAuditedReads
            else {
                reads.unnoted[log, default: 0] += 1
                return (nil, forgotten)
            }
            reads.quietUntil[what] = now + Limits.auditedReadPause.wholeNanoseconds
            reads.lines += 1
            assert(reads.lines <= Limits.maximumAuditedReads, "an operator's reads have a limited number of lines")
            let unnoted = reads.unnoted.removeValue(forKey: log) ?? 0
            return ((unnoted, reads.lines == Limits.maximumAuditedReads), forgotten)
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
