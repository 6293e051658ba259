import Change
import Policy
import TestSupport
import Testing

@testable import Catalog

/// Tests of the mapping from a stored schema's columns to the columns of a table.
@Suite(.within(minutes: 5)) struct ColumnIdentitiesTests {
    /// Random history of a table: the schemas of its rows, with the numbers of their columns.
    private struct Life {
        private(set) var live: [(number: Int, name: String, since: LSN)] = []
        private(set) var dropped: [DroppedColumn] = []
        private(set) var rows: [(at: LSN, names: [String], numbers: [Int])] = []
        private var last = 0
        private(set) var now: UInt64 = 0

        var since: LSN { LSN(now) }

        mutating func add(_ name: String) {
            last += 1
            live.append((last, name, since))
        }

        mutating func drop(_ place: Int) {
            dropped.append(DroppedColumn(number: live[place].number, since: since))
            live.remove(at: place)
        }

        mutating func rename(_ place: Int, _ name: String) {
            live[place].name = name
            live[place].since = since
        }

        mutating func row() { rows.append((since, live.map(\.name), live.map(\.number))) }

        mutating func step() { now += 1 }

        var table: CatalogTable {
            CatalogTable(
                oid: 1, schema: "public", name: "t",
                columns: live.map {
                    CatalogColumn(
                        facts: ColumnFacts(
                            name: $0.name, type: TypeFacts(oid: 25, name: "text", shape: .base), collation: .bytewise),
                        number: $0.number, typeOID: 25, typeName: "text", declaredType: "text",
                        rendering: .scalar(oid: 25), since: $0.since)
                }, primaryKey: [], identity: .nothing, hasRowSecurity: false, forcesRowSecurity: false,
                hasPolicies: false, operations: .all, dropped: dropped.sorted { $0.number < $1.number })
        }
    }

    private static func relation(_ names: [String]) -> Relation {
        Relation(
            oid: 1, schema: "public", name: "t", identity: .nothing,
            columns: names.map {
                Column(name: $0, typeOID: 25, typeName: "text", isIdentity: false, isPrimaryKey: false)
            })
    }

    @Test(arguments: seeds(300)) func `no column is taken for another, and most are known`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        var life = Life()
        let names = ["a", "b", "c", "d", "e"]
        for name in names.prefix(3) { life.add(name) }
        life.step()
        for _ in 0..<12 {
            // Positions do not show the order of changes between two readings of the catalog.
            if Int.random(in: 0..<3, using: &random) == 0 { life.step() }
            let free = names.filter { name in !life.live.contains { $0.name == name } }
            let place = Int.random(in: 0..<life.live.count, using: &random)
            switch Int.random(in: 0..<8, using: &random) {
            case 0: if let name = free.randomElement(using: &random) { life.add(name) }
            case 1: if life.live.count > 1 { life.drop(place) }
            case 2: if let name = free.randomElement(using: &random) { life.rename(place, name) }
            case 3:
                let other = Int.random(in: 0..<life.live.count, using: &random)
                let (one, two) = (life.live[place].name, life.live[other].name)
                life.rename(place, two)
                life.rename(other, one)
            default: life.row()
            }
        }
        let table = life.table
        for row in life.rows {
            let identities = ColumnIdentities(of: Self.relation(row.names), in: table, at: row.at)
            for (place, number) in row.numbers.enumerated() {
                switch identities.places[place] {
                case .column(let slot): #expect(table.columns[slot].number == number, "\(row) in \(life)")
                case .dropped: #expect(life.dropped.contains { $0.number == number }, "\(row) in \(life)")
                case .unknown: #expect(!life.dropped.isEmpty, "\(row) in \(life)")
                }
            }
        }
    }
}
