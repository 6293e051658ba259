import Change
import History
import TestSupport
import Testing

@testable import Replaying

@Suite(.within(minutes: 5)) struct TableOrderTests {
    private static func table(_ number: Int) -> TableName { TableName(schema: "s", name: "t\(number)") }

    /// Returns, for each table, the tables to which it refers directly or through others.
    private static func reachable(_ count: Int, _ references: [(Int, Int)]) -> [Set<Int>] {
        var reached = (0..<count).map { from in Set(references.filter { $0.0 == from }.map(\.1)) }
        for _ in 0..<count {
            for from in 0..<count {
                reached[from] = reached[from].reduce(into: reached[from]) { $0.formUnion(reached[$1]) }
            }
        }
        return reached
    }

    @Test(arguments: seeds(60)) func `each table comes behind those that it refers to, but for circles, which are said`(
        _ seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let count = Int.random(in: 1...12, using: &random)
        let references = (0..<Int.random(in: 0...18, using: &random)).map { _ in
            (Int.random(in: 0..<count, using: &random), Int.random(in: 0..<count, using: &random))
        }
        let given = (0..<count).map(Self.table).shuffled(using: &random)
        // A table that is not wanted does not affect the place of another.
        let known =
            references.map { TableOrder.Reference(Self.table($0.0), to: Self.table($0.1)) } + [
                TableOrder.Reference(Self.table(0), to: TableName(schema: "other", name: "t1"))
            ]
        let order = TableOrder(of: given, known.shuffled(using: &random), from: .log)
        #expect(order.tables.count == count && Set(order.tables) == Set(given))
        let reached = Self.reachable(count, references)
        let places = Dictionary(uniqueKeysWithValues: zip(order.tables, 0...))
        for (table, other) in references where table != other && !reached[other].contains(table) {
            #expect(
                try #require(places[Self.table(other)]) < #require(places[Self.table(table)]),
                "t\(table) refers to t\(other): \(order.tables)")
        }
        let circles = Set(order.circles.map { Set($0) })
        let expected = (0..<count).map { table in
            Set(
                (0..<count).filter { $0 == table || (reached[table].contains($0) && reached[$0].contains(table)) }.map(
                    Self.table))
        }
        #expect(circles == Set(expected.filter { $0.count > 1 }))
    }

    @Test func `tables that do not refer to each other stay as they are given`() {
        let given = [3, 1, 2].map(Self.table)
        #expect(TableOrder(of: given, [], from: .names).tables == given)
    }
}
