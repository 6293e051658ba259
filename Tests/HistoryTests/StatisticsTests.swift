import Change
import EventLog
import System
import TestSupport
import Testing

@testable import History

@Suite(.within(minutes: 5)) struct StatisticsTests {
    /// Compares the counts with a simple count of every change.
    @Test(arguments: seeds(40)) func `counts what is there`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let stage = try HistoryStage(segmentBytes: UInt64.random(in: 700...4000, using: &random))
        for step in 0..<Int.random(in: 5...30, using: &random) { try commit(step, stage, &random) }
        let offsets = stage.writer.nextOffset
        for _ in 0..<15 {
            var query = HistoryQuery()
            if Bool.random(using: &random) { query.from = .offset(UInt64.random(in: 0...offsets, using: &random)) }
            if Bool.random(using: &random) { query.to = .offset(UInt64.random(in: 0...offsets, using: &random)) }
            if random.next() % 3 == 0 { query.tables = [TableName(schema: "app", name: "users")] }
            if random.next() % 3 == 0 { query.operations = [.insert, .message] }
            if random.next() % 4 == 0 { query.conditions = [RowCondition(column: "email", .equals("x"))] }
            let grouping = random.pick(LogStatistics.Grouping.allCases)
            var statistics = LogStatistics(by: grouping, top: 3)
            var reader = try HistoryReader(stage.log, query)
            var reached: UInt64 = 0
            try reader.count(into: &statistics) { reached = $0 }
            #expect(reached <= offsets)
            check(statistics, try stage.log.items(query), grouping, "\(query) by \(grouping)")
        }
    }

    private func commit(_ step: Int, _ stage: HistoryStage, _ random: inout SeededRandom) throws {
        let time = Int64.random(in: -300...30_000, using: &random) * 10_000_000
        switch Int.random(in: 0...9, using: &random) {
        case 0: try stage.gap(to: stage.lsn + 0x80, time: time)
        case 1: try stage.commit([.message([1], [2, 3], transactional: false)], xid: 0, time: 0)
        default:
            var puts = (0..<Int.random(in: 1...6, using: &random)).map { _ in
                let relation = Bool.random(using: &random) ? notes : users
                let size = Int.random(in: 0...40, using: &random)
                let row =
                    [RowValue(stringLiteral: "\(size)")]
                    + relation.columns.dropFirst().map { _ in
                        RowValue(stringLiteral: size % 2 == 0 ? "x" : String(repeating: "y", count: size))
                    }
                return switch Int.random(in: 0...4, using: &random) {
                case 0, 1: Put.insert(relation, row)
                case 2: Put.update(relation, row, old: row, .full)
                case 3: Put.delete(relation, row, .full)
                default: Put.truncate(relation)
                }
            }
            if Int.random(in: 0...2, using: &random) == 0 {
                let content = Array(#"{"actor":"\(random.pick(["ana", "ben"]))"}"#.utf8)
                puts.insert(
                    .message(TransactionActor.prefix, content, transactional: true),
                    at: Int.random(in: 0...puts.count, using: &random))
            }
            try stage.commit(
                puts, xid: UInt32(step + 1), time: time, origin: random.pick(["", "", "elsewhere"]),
                partSize: Int.random(in: 1...7, using: &random))
        }
    }

    private func check(
        _ statistics: LogStatistics, _ items: [HistoryItem], _ grouping: LogStatistics.Grouping, _ what: String
    ) {
        let changes = items.compactMap(\.recorded)
        #expect(statistics.total.changes == UInt64(changes.count), "\(what)")
        #expect(statistics.total.bytes == changes.reduce(0) { $0 + size($1) }, "\(what)")
        #expect(
            statistics.gaps.map(\.offset) == items.compactMap { if case .gap(let gap) = $0 { gap.offset } else { nil } }
        )
        #expect(
            statistics.offsets?.lowerBound == changes.first?.offset
                && statistics.offsets?.upperBound == changes.last?.offset)
        for operation in Operation.allCases {
            #expect(statistics.total[operation] == UInt64(changes.count { $0.operation == operation }), "\(what)")
        }
        #expect(statistics.total.transactions == UInt64(Set(changes.map(\.transaction.commitLSN)).count), "\(what)")
        if grouping != .minute, grouping != .hour, grouping != .day {
            checkGroups(statistics, changes, grouping, what)
        }
        let sums = statistics.groups.map(\.count)
        #expect(sums.reduce(0) { $0 + $1.changes } == statistics.total.changes, "\(what)")
        #expect(sums.reduce(0) { $0 + $1.bytes } == statistics.total.bytes, "\(what)")
        let largest = changes.map { size($0) }.sorted(by: >).prefix(3)
        #expect(statistics.largestRows.map(\.bytes) == Array(largest), "\(what)")
        let transactions = Dictionary(grouping: changes, by: \.transaction.commitLSN).values
        let most = transactions.map { $0.reduce(0) { $0 + size($1) } }.sorted(by: >).prefix(3)
        #expect(statistics.largestTransactions.map(\.bytes) == Array(most), "\(what)")
    }

    private func checkGroups(
        _ statistics: LogStatistics, _ changes: [RecordedChange], _ grouping: LogStatistics.Grouping, _ what: String
    ) {
        let expected = Dictionary(grouping: changes) { change -> LogStatistics.Group in
            switch grouping {
            case .operation: .operation(change.operation)
            case .origin: .origin(change.transaction.origin)
            case .actor: .actor(change.actor?.name ?? "")
            default: change.relation.map { .table($0.table) } ?? .messages
            }
        }
        #expect(Set(statistics.groups.map(\.group)) == Set(expected.keys), "\(what)")
        for (group, count) in statistics.groups {
            let own = expected[group] ?? []
            #expect(count.changes == UInt64(own.count), "\(group) in \(what)")
            #expect(count.transactions == UInt64(Set(own.map(\.transaction.commitLSN)).count), "\(group) in \(what)")
        }
        let order = statistics.groups.map(\.count.changes)
        #expect(order == order.sorted(by: >), "\(what)")
    }

    /// Returns the change's size in the log.
    private func size(_ change: RecordedChange) -> UInt64 {
        if change.operation == .message { return UInt64(change.prefix.count + change.content.count) }
        return [change.old, change.new].reduce(0) { $0 + ($1.isEmpty ? 0 : UInt64(tuple($1).count)) }
    }

    @Test func `a span of time begins where it begins, before 1970 too`() throws {
        let stage = try HistoryStage()
        for time in [-61_000_000, -60_000_000, -1, 0, 59_999_999, 60_000_000] as [Int64] {
            try stage.commit([.insert(notes, ["1", "x", "x"])], xid: 5, time: time == 0 ? 1 : time)
        }
        var statistics = LogStatistics(by: .minute, top: 0)
        var reader = try HistoryReader(stage.log, HistoryQuery())
        try reader.count(into: &statistics) { _ in }
        let minutes = statistics.groups.map(\.group)
        #expect(minutes == [-120_000_000, -60_000_000, 0, 60_000_000].map { .time($0) })
        #expect(statistics.groups.map(\.count.changes) == [1, 2, 2, 1])
        #expect(statistics.largestRows.isEmpty && statistics.largestTransactions.isEmpty)
    }
}
