import Catalog
import Change
import History
import Protocol

/// Comparison of the changes that the hub sent to each channel with those that the given policies would have shown it.
struct LeakFindings {
    private struct Key: Hashable {
        var user: String
        var role: String
        var table: Int
    }

    private struct ShiftKey: Hashable {
        var line: Int
        var isGain: Bool
        var shownBy: RulingReason
        var keptBy: RulingReason
    }

    /// Delivery of a change after a client's return. The client's channel before the return therefore did not miss it.
    private struct Return: Hashable {
        var line: Int
        var topic: [UInt8]
        var offset: UInt64
    }

    /// Delivery that the hub did not make. It counts as missed unless the client received the change after a return.
    private struct Missing {
        var line: Int
        var item: LeakReport.Item
        var operation: Operation
        var subject: Int
        var verdict: Verdict
    }

    private struct Channel: Hashable {
        var session: UInt64
        var channel: UInt32
    }

    /// Result for one change and one channel: the actual delivery, and that by the given policies; nil is unknown.
    private struct Verdict {
        var delivered: Bool?
        var sentAt: Int64?
        var would: Bool?
        /// True if the catalog at that time showed the change to the client; nil if unknown.
        var shown: Bool?
        var cause = UnknownCause.ledger
    }

    private let log: HistoryLog
    private let book: AttendanceBook
    private let timeline: CatalogTimeline
    private let catalogs: [Int: RuledChanges]
    private let given: RuledChanges
    private let changes: WindowChanges
    private let settings: Leak.Settings
    private var lines: [Key: Int] = [:]
    private var shifts: [ShiftKey: Int] = [:]
    /// Unix time in microseconds at which each change was first sent to each channel, by the change's offset.
    private var sent: [Channel: [UInt64: Int64]] = [:]
    private var returns: Set<Return> = []
    private var missing: [Missing] = []

    init(
        _ log: HistoryLog, _ book: AttendanceBook, _ timeline: CatalogTimeline, _ catalogs: [Int: RuledChanges],
        _ given: RuledChanges, _ changes: WindowChanges, _ settings: Leak.Settings
    ) {
        (self.log, self.book, self.timeline, self.catalogs) = (log, book, timeline, catalogs)
        (self.given, self.changes, self.settings) = (given, changes, settings)
    }

    /// Compares all deliveries of the given offsets to all clients, and fills the report.
    mutating func find(_ clients: LeakClients, _ offsets: Range<UInt64>, _ report: inout LeakReport) throws {
        var sent: [Channel: [UInt64: Int64]] = [:]
        try log.deliveries(of: offsets) { delivery in
            let channel = Channel(session: delivery.session, channel: delivery.channel)
            if sent[channel]?[delivery.offset] == nil { sent[channel, default: [:]][delivery.offset] = delivery.time }
        }
        self.sent = sent
        report.channels = clients.clients.count
        for client in clients.clients { try find(client, offsets, &report) }
        for missing in missing { add(missing, &report) }
        let order = report.lines.indices.sorted {
            let (one, other) = (report.lines[$0], report.lines[$1])
            return (other.count(.leaked), one.user, one.table.description)
                < (one.count(.leaked), other.user, other.table.description)
        }
        report.items = report.items.map { item in
            var item = item
            item.line = order.firstIndex(of: item.line) ?? item.line
            return item
        }.sorted { ($0.offset, $0.line) < ($1.offset, $1.line) }
        report.lines = order.map { place in
            var line = report.lines[place]
            line.shifts.sort { ($0.isGain ? 1 : 0, -$0.rows) < ($1.isGain ? 1 : 0, -$1.rows) }
            return line
        }
    }

    private mutating func find(
        _ client: LeakClients.Client, _ offsets: Range<UInt64>, _ report: inout LeakReport
    ) throws {
        let attendance = client.attendance
        let later = try laterCatalogs(attendance)
        for (number, piece) in client.subjects.enumerated() {
            let end = number + 1 < client.subjects.count ? client.subjects[number + 1].from : .max
            let range = max(piece.from, attendance.since)..<max(piece.from, attendance.since, end)
            guard let subject = piece.subject else {
                note(unreadable: attendance, range.clamped(to: offsets), &report)
                continue
            }
            ToldChanges.visit(
                [given.told] + catalogs.values.map(\.told), holder: subject, in: range.clamped(to: offsets)
            ) { offset in
                judge(offset, subject, client, later, &report)
            }
        }
    }

    /// Counts the changes that the log records as sent to a client whose claims cannot be read, as unknown.
    private mutating func note(unreadable attendance: Attendance, _ range: Range<UInt64>, _ report: inout LeakReport) {
        let times = sent[Channel(session: attendance.session, channel: attendance.channel)] ?? [:]
        for offset in times.keys.sorted() where range.contains(offset) {
            guard let fact = changes.fact(at: offset) else { continue }
            add(.unknown, offset, fact.table, attendance, Verdict(delivered: true, cause: .claims), &report)
        }
    }

    // MARK: One change and one channel

    /// Offset of the last change before a returning client joined. Its catch-up may be decided by catalogs from there
    /// on, as in the command `who`. Nil for a client that did not catch up.
    private func laterCatalogs(_ attendance: Attendance) throws -> UInt64? {
        guard book.catchUpEnd(of: attendance, to: attendance.since) != nil else { return nil }
        return try CatalogTimeline.place(at: attendance.joined, in: log)
    }

    private mutating func judge(
        _ offset: UInt64, _ subject: Int, _ client: LeakClients.Client, _ later: UInt64?, _ report: inout LeakReport
    ) {
        let attendance = client.attendance
        guard let fact = changes.fact(at: offset) else { return }
        let reach = attendance.reach(of: offset, committed: changes.time(at: offset))
        if reach == .notYet { return }
        let time = sent[Channel(session: attendance.session, channel: attendance.channel)]?[offset]
        let finding = DeliveryRecord.finding(of: offset, sentAt: time, attendance, of: book)
        var verdict = Verdict(would: given.told.isTold(offset, to: subject))
        verdict.cause = verdict.would == nil ? cause(given.told, subject) : .ledger
        let (shown, cause) = shown(offset, subject, client, reach, later)
        verdict.shown = shown
        switch (finding, reach) {
        case (.sent(let time), _): (verdict.delivered, verdict.sentAt) = (true, time)
        case (.notSent, _): verdict.delivered = false
        case (_, .endedBefore): return
        case (.unknown, _), (.none, .unknown): verdict.delivered = shown == false ? false : nil
        case (.none, _):
            verdict.delivered = shown
            if shown == nil { verdict.cause = cause }
        }
        if case .sentLater = reach, verdict.delivered != false {
            let line = line(fact.table, offset, attendance, &report)
            returns.insert(Return(line: line, topic: attendance.joined.note.topic, offset: offset))
        }
        take(verdict, offset, fact, subject, attendance, &report)
    }

    /// Adds the result for one change and one channel to the report, or to the deliveries that may be missing.
    private mutating func take(
        _ verdict: Verdict, _ offset: UInt64, _ fact: (table: Int, operation: Operation), _ subject: Int,
        _ attendance: Attendance, _ report: inout LeakReport
    ) {
        let table = changes.tables[fact.table]
        switch (verdict.delivered, verdict.would) {
        case (true?, true?):
            let columns = columns(beyond: table, subject, at: offset)
            add(columns.isEmpty ? nil : .columns, offset, fact.table, attendance, verdict, &report, columns)
        case (true?, false?):
            // A recorded delivery that the catalog at that time does not explain may be one without values.
            if verdict.shown != true, isWithoutValues(table, subject, offset) { return }
            if verdict.shown != true, fact.operation == .update {
                var verdict = verdict
                verdict.cause = .unexplained
                add(.unknown, offset, fact.table, attendance, verdict, &report)
                return
            }
            let line = add(.leaked, offset, fact.table, attendance, verdict, &report)
            shift(line, false, offset, fact.operation, table, subject, verdict, &report)
        case (false?, true?):
            let line = line(fact.table, offset, attendance, &report)
            let item = LeakReport.Item(kind: .missed, offset: offset, line: line, attendance: attendance)
            missing.append(
                Missing(line: line, item: item, operation: fact.operation, subject: subject, verdict: verdict))
        case (false?, false?): return
        case (nil, _), (_, nil): add(.unknown, offset, fact.table, attendance, verdict, &report)
        }
    }

    /// Returns whether the catalogs by which the hub may have decided showed the client the change. Nil, with the
    /// cause, if that is unknown or the catalogs differ.
    private func shown(
        _ offset: UInt64, _ subject: Int, _ client: LeakClients.Client, _ reach: Attendance.Reach, _ later: UInt64?
    ) -> (Bool?, UnknownCause) {
        let attendance = client.attendance
        var place = offset
        if let later, case .sentLater = reach {
            place = timeline.beforeTurns(since: attendance.joined, max(offset, later))
        }
        let first = shown(offset, subject, timeline.record(at: place))
        guard let end = book.catchUpEnd(of: attendance, to: offset) else { return first }
        let records = [timeline.record(at: place)] + timeline.records(after: place, through: end)
        let renewed = client.subjects.filter { $0.from > offset && $0.from <= end }.map(\.subject)
        for record in records {
            for subject in [subject] + renewed {
                let other = subject.map { shown(offset, $0, record) } ?? (nil, .claims)
                if other.0 != first.0 { return (nil, .caughtUp) }
            }
        }
        return first
    }

    private func shown(_ offset: UInt64, _ subject: Int, _ record: Int?) -> (Bool?, UnknownCause) {
        guard let record, let ruled = catalogs[record],
            timeline.records[record].roles.contains(given.ruling.role(of: subject))
        else { return (nil, .catalog) }
        let shown = ruled.told.isTold(offset, to: subject)
        return (shown, shown == nil ? cause(ruled.told, subject) : .ledger)
    }

    /// Returns the first cause for which verdicts of this subject are unknown.
    private func cause(_ told: ToldChanges, _ subject: Int) -> UnknownCause {
        UnknownCause.allCases.first { told.causes[subject].contains($0) } ?? .catalog
    }

    /// Returns the result of the catalog that was valid at the change, for the subject and the table; nil if it is
    /// unknown.
    private func past(_ table: TableName, _ subject: Int, _ offset: UInt64) -> RuledChanges.OfTable? {
        timeline.record(at: offset).flatMap { catalogs[$0] }?.of(table, subject)
    }

    /// True if the role could not read the table's key at the change. The hub then sends the change as an error,
    /// without values.
    private func isWithoutValues(_ table: TableName, _ subject: Int, _ offset: UInt64) -> Bool {
        past(table, subject, offset)?.isReadable == false
    }

    /// Returns the names of the columns that the hub sent and that the given policies would not let the role read.
    private func columns(beyond table: TableName, _ subject: Int, at offset: UInt64) -> [String] {
        guard let past = past(table, subject, offset) else { return [] }
        return past.delivered.subtracting(given.of(table, subject).delivered).sorted()
    }

    // MARK: The report

    /// Adds a missed delivery to the report, unless the client received the change after a return.
    private mutating func add(_ missing: Missing, _ report: inout LeakReport) {
        let (item, line) = (missing.item, missing.line)
        let topic = item.attendance.joined.note.topic
        if returns.contains(Return(line: line, topic: topic, offset: item.offset)) { return }
        report.lines[line].counts[.missed, default: 0] += 1
        list(item, &report)
        shift(
            line, true, item.offset, missing.operation, report.lines[line].table, missing.subject, missing.verdict,
            &report)
    }

    /// Adds a differing delivery to the report's list, up to the requested number.
    private func list(_ item: LeakReport.Item, _ report: inout LeakReport) {
        if report.items.count < settings.items { report.items.append(item) }
    }

    /// Returns the index in the report of the line for the user and the table; adds the line if necessary.
    private mutating func line(
        _ table: Int, _ offset: UInt64, _ attendance: Attendance, _ report: inout LeakReport
    ) -> Int {
        let note = attendance.holder(at: offset).note
        let key = Key(
            user: String(decoding: note.subject, as: UTF8.self), role: String(decoding: note.role, as: UTF8.self),
            table: table)
        if let line = lines[key] { return line }
        lines[key] = report.lines.count
        report.lines.append(LeakReport.Line(user: key.user, role: key.role, table: changes.tables[table]))
        return report.lines.count - 1
    }

    @discardableResult
    private mutating func add(
        _ kind: LeakReport.Kind?, _ offset: UInt64, _ table: Int, _ attendance: Attendance, _ verdict: Verdict,
        _ report: inout LeakReport, _ columns: [String] = []
    ) -> Int {
        let line = line(table, offset, attendance, &report)
        if verdict.delivered == true { report.lines[line].delivered += 1 }
        if verdict.sentAt != nil { report.recorded += 1 }
        guard let kind else { return line }
        report.lines[line].counts[kind, default: 0] += 1
        report.lines[line].columns.formUnion(columns)
        if kind == .unknown { report.lines[line].causes.insert(verdict.cause) }
        list(
            LeakReport.Item(
                kind: kind, offset: offset, line: line, attendance: attendance, sentAt: verdict.sentAt,
                cause: kind == .unknown ? verdict.cause : nil, columns: columns), &report)
        return line
    }

    /// Counts a leaked or missed delivery in the group with its reasons: those of the catalog at that time and of the
    /// given policies.
    private mutating func shift(
        _ line: Int, _ isGain: Bool, _ offset: UInt64, _ operation: Operation, _ table: TableName, _ subject: Int,
        _ verdict: Verdict, _ report: inout LeakReport
    ) {
        let then = given.of(table, subject)
        let after = then.ground(operation, then.shown(at: offset), isTold: isGain)
        var before = RulingReason.unknown
        if let past = past(table, subject, offset), verdict.shown == !isGain {
            before = past.ground(operation, past.shown(at: offset), isTold: !isGain)
        }
        let key = ShiftKey(
            line: line, isGain: isGain, shownBy: isGain ? after : before, keptBy: isGain ? before : after)
        let place = shifts[key] ?? report.lines[line].shifts.count
        if shifts[key] == nil {
            shifts[key] = place
            report.lines[line].shifts.append(
                WhatIfReport.Shift(isGain: isGain, shownBy: key.shownBy, keptBy: key.keptBy))
        }
        report.lines[line].shifts[place].rows += 1
        if report.lines[line].shifts[place].examples.count < settings.examples {
            report.lines[line].shifts[place].examples.append(offset)
        }
    }
}
