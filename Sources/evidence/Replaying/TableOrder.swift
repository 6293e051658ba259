import Change
import History

/// Order of tables in which each table follows the tables to which its rows refer.
public struct TableOrder: Sendable {
    /// Reference from rows of `table` to rows of `referenced`.
    public struct Reference: Sendable, Hashable {
        public var table: TableName
        public var referenced: TableName

        public init(_ table: TableName, to referenced: TableName) {
            self.table = table
            self.referenced = referenced
        }
    }

    /// Source that states the references: the catalog in the log, the database, or only the names of columns.
    public enum Source: Sendable, Equatable {
        /// The catalog, as the hub recorded it in the log.
        case log
        case database
        /// Names of columns that look like references to other tables, and nothing else.
        case names
    }

    public let source: Source
    /// All tables in their order. Each occurs once.
    public private(set) var tables: [TableName] = []
    /// Groups of tables that refer to each other in a circle, so that none of them can be first. In the order of
    /// `tables`.
    public private(set) var circles: [[TableName]] = []

    /// Computes the order. If two tables may be in either order, they keep the given one.
    public init(of tables: [TableName], _ references: [Reference], from source: Source) {
        self.source = source
        var search = CircleSearch(tables, references)
        for place in tables.indices { search.visit(place) }
        self.tables = search.groups.flatMap { $0.map { tables[$0] } }
        circles = search.groups.filter { $0.count > 1 }.map { $0.map { tables[$0] } }
    }

    /// Guesses references from names of columns: `city_id` refers to a table `city`, or to a plural of it with `s`,
    /// `es` or `ies`.
    public static func guessed(of relations: [RecordedRelation]) -> [Reference] {
        let tables = Set(relations.map(\.table))
        var references: [Reference] = []
        for relation in relations {
            for column in relation.relation.columns where column.name.hasSuffix("_id") {
                let stem = String(column.name.dropLast(3))
                let names = [stem, stem + "s", stem + "es"] + (stem.hasSuffix("y") ? [stem.dropLast() + "ies"] : [])
                let found = names.map { TableName(schema: relation.table.schema, name: $0) }.first(
                    where: tables.contains)
                if let found, found != relation.table { references.append(Reference(relation.table, to: found)) }
            }
        }
        return references
    }
}

/// Tarjan's algorithm, which finds groups of tables that refer to each other in a circle. Each table is an index in the
/// list of tables. The search finds a group after the groups to which it refers.
private struct CircleSearch {
    /// Indexes of the tables to which each table refers.
    private let referenced: [[Int]]
    /// Tarjan's index of each table: its place in the order in which the search first reached the tables. Nil while the
    /// table is unvisited.
    private var numbers: [Int?]
    /// Tarjan's low link of each table: the smallest index in `numbers` that the search has reached from it among the
    /// tables in `open`.
    private var lowest: [Int]
    /// True for each table that is in `open`.
    private var isOpen: [Bool]
    /// Tarjan's stack: visited tables whose group is not known yet.
    private var open: [Int] = []
    private var count = 0
    /// Groups that the search has found, each a list of tables. A table outside of all circles is a group by itself.
    private(set) var groups: [[Int]] = []

    init(_ tables: [TableName], _ references: [TableOrder.Reference]) {
        let places = Dictionary(zip(tables, tables.indices), uniquingKeysWith: { first, _ in first })
        var referenced = [[Int]](repeating: [], count: tables.count)
        for reference in Set(references) {
            guard let from = places[reference.table], let to = places[reference.referenced], from != to else {
                continue
            }
            referenced[from].append(to)
        }
        self.referenced = referenced.map { $0.sorted() }
        numbers = [Int?](repeating: nil, count: tables.count)
        lowest = [Int](repeating: 0, count: tables.count)
        isOpen = [Bool](repeating: false, count: tables.count)
    }

    /// Visits the table at this index and the tables to which it refers. The recursion is as deep as the longest chain
    /// of references.
    mutating func visit(_ place: Int) {
        guard numbers[place] == nil else { return }
        let number = count
        numbers[place] = number
        lowest[place] = number
        count += 1
        open.append(place)
        isOpen[place] = true
        for next in referenced[place] {
            if numbers[next] == nil {
                visit(next)
                lowest[place] = min(lowest[place], lowest[next])
            } else if isOpen[next], let other = numbers[next] {
                lowest[place] = min(lowest[place], other)
            }
        }
        guard lowest[place] == number else { return }
        var group: [Int] = []
        while let last = open.popLast() {
            isOpen[last] = false
            group.append(last)
            if last == place { break }
        }
        groups.append(group.sorted())
    }
}
