import Catalog
import Change
@_spi(Judging) import History

/// Channels of the ledger, with the claims and bindings by which the hub decided for each. Channels with the same
/// claims and bindings share one subject, so that each subject is evaluated once.
struct LeakClients {
    private struct Subject: Hashable {
        var claims: [UInt8]
        var role: [UInt8]
        var unknown: [String]
        var bindings: [ListedBinding]
    }

    /// Channel with its subjects (claims, role and bindings). A renewed token gives it a new subject.
    struct Client {
        var attendance: Attendance
        /// Subject indexes of the channel, each with the first offset for which it counts, in ascending order. The
        /// index is nil if the claims cannot be read.
        var subjects: [(from: UInt64, subject: Int?)]

        func subject(at offset: UInt64) -> Int? { (subjects.last { $0.from <= offset } ?? subjects[0]).subject }
    }

    private(set) var clients: [Client] = []
    private(set) var holders: [ExplainedHolder] = []
    private(set) var unknownClaims: [Set<String>] = []
    private(set) var maskedFilters: [Set<TableName>] = []
    private(set) var bindings: [[TableName: [AskedBinding]]] = []
    private var numbers: [Subject: Int?] = [:]

    /// Collects the channels that were joined in the range of offsets, of all users or of one.
    ///
    /// - Parameter tables: tables whose bindings are considered.
    init(_ book: AttendanceBook, of user: String?, in offsets: Range<UInt64>, _ tables: [TableName]) {
        for attendance in book.all {
            let first = attendance.joined
            guard attendance.since < offsets.upperBound, !first.bindings.isEmpty else { continue }
            guard attendance.reach(of: offsets.lowerBound, committed: .max) != .endedBefore else { continue }
            let notes = [first] + attendance.renewals
            if let user, !notes.contains(where: { $0.whole.subject == Array(user.utf8) }) { continue }
            var subjects: [(from: UInt64, subject: Int?)] = []
            for (place, note) in notes.enumerated() {
                subjects.append((place == 0 ? 0 : note.note.offset, number(note, first.bindings, tables)))
            }
            clients.append(Client(attendance: attendance, subjects: subjects))
        }
    }

    private mutating func number(_ note: RecordedNote, _ listed: [ListedBinding], _ tables: [TableName]) -> Int? {
        let unknown = ExplainedHolder.unknownClaims(of: note)
        let subject = Subject(claims: note.whole.claims, role: note.whole.role, unknown: unknown, bindings: listed)
        if let known = numbers[subject] { return known }
        guard let holder = try? ExplainedHolder(note) else {
            numbers[subject] = .some(nil)
            return nil
        }
        var (asked, masked): ([TableName: [AskedBinding]], Set<TableName>) = ([:], [])
        for table in tables {
            for binding in listed where binding.isAbout(table.schema, table.name) {
                var known = AskedBinding(binding)
                if known == nil {
                    masked.insert(table)
                    known = AskedBinding(operations: RowOperations(event: binding.event))
                }
                if let known, asked[table]?.contains(known) != true { asked[table, default: []].append(known) }
            }
        }
        holders.append(holder)
        unknownClaims.append(Set(unknown))
        maskedFilters.append(masked)
        bindings.append(asked)
        numbers[subject] = holders.count - 1
        return holders.count - 1
    }
}
