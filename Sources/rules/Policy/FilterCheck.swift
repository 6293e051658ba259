/// Reason for refusing a subscription, in the form of a PostgreSQL error. Clients see `ERROR sqlstate (condition)
/// message`.
public struct FilterRefusal: Error, Sendable, Hashable {
    public var sqlState: String
    /// Name of the error code, such as `raise_exception`.
    public var condition: String
    public var message: String

    public init(sqlState: String, condition: String, message: String) {
        self.sqlState = sqlState
        self.condition = condition
        self.message = message
    }

    /// Creates a refusal like those that the trigger in Supabase Realtime's schema raises.
    public static func raised(_ message: String) -> FilterRefusal {
        FilterRefusal(sqlState: "P0001", condition: "raise_exception", message: message)
    }

    static func invalidColumn(_ name: String) -> FilterRefusal { .raised("invalid column for filter \(name)") }

    static var endsWithEscape: FilterRefusal {
        FilterRefusal(
            sqlState: "22025", condition: "invalid_escape_sequence",
            message: "LIKE pattern must not end with escape character")
    }

    static func syntax(_ type: String, _ text: String) -> FilterRefusal {
        FilterRefusal(
            sqlState: "22P02", condition: "invalid_text_representation",
            message: "invalid input syntax for type \(type): \"\(text)\"")
    }

    static func outOfRange(_ type: String, _ text: String) -> FilterRefusal {
        FilterRefusal(
            sqlState: "22003", condition: "numeric_value_out_of_range",
            message: "value \"\(text)\" is out of range for type \(type)")
    }
}

/// Value in a filter that PostgreSQL must convert to its canonical form, before the hub can make a predicate of it.
public struct Literal: Sendable, Hashable {
    /// Name of the type, as a cast needs it.
    public var typeName: String
    public var text: String
    /// True for the list of an `in` and for a value of an array type.
    public var isArray: Bool
    /// Query that returns the canonical text, as the type's output function writes it. Parameter `$1` is the client's
    /// text, without a declared type. The query fails if the text is not a value of the type, or if the type lacks the
    /// operator.
    public var sql: String
    /// Text that precedes PostgreSQL's message about an invalid pattern; nil for other values.
    var complaint: String?

    /// Returns the refusal for the client after PostgreSQL has refused the value.
    public func refusal(sqlState: String, condition: String, message: String) -> FilterRefusal {
        guard let complaint, sqlState == "2201B" else {
            return FilterRefusal(sqlState: sqlState, condition: condition, message: message)
        }
        return .raised(complaint + message)
    }
}

/// Filter that was checked against a table: its columns exist, and operators fit the types. It lists the literals that
/// PostgreSQL must convert before the hub can make a predicate of the filter.
public struct FilterCheck: Sendable {
    public struct Settings: Sendable {
        /// Maximum number of elements in the list of an `in`.
        public var maximumListElements: Int
        /// Maximum number of keys by which the index finds a predicate. A predicate with more keys is evaluated for
        /// every row.
        public var maximumKeys: Int
        /// Maximum number of keys of a policy's predicate, which has a key for each membership row of the holder.
        public var maximumPolicyKeys: Int
        /// Maximum product of the lengths of a value and of a pattern that is searched in it. Above it the hub asks
        /// PostgreSQL, whose statement can time out. A socket loop has no such timeout.
        public var maximumWork: Int
        /// Slots of the columns that the role may not read. A filter on one of them fails as if the column did not
        /// exist.
        public var hiddenSlots: Set<Int>
        public var text: TextRules

        public init(
            maximumListElements: Int, maximumKeys: Int, maximumWork: Int, hiddenSlots: Set<Int> = [],
            text: TextRules, maximumPolicyKeys: Int? = nil
        ) {
            self.maximumListElements = maximumListElements
            self.maximumKeys = maximumKeys
            self.maximumPolicyKeys = maximumPolicyKeys ?? maximumKeys
            self.maximumWork = maximumWork
            self.hiddenSlots = hiddenSlots
            self.text = text
        }
    }

    /// Literals, in the order in which `Predicate` expects their canonical forms.
    public private(set) var literals: [Literal] = []
    let columns: [ColumnFacts]
    let settings: Settings
    private(set) var root: CheckedNode = .all([])
    /// True if the filter compares a column with a time relative to the commit of the change (`now-10min`). Rows then
    /// begin and cease to match as time passes.
    public private(set) var readsClock = false

    public init(_ filter: Filter, columns: [ColumnFacts], settings: Settings) throws(FilterRefusal) {
        self.columns = columns
        self.settings = settings
        root = try node(filter)
        precondition(root.slots.isDisjoint(with: settings.hiddenSlots), "a column that its reader may not read")
    }

    /// Slots of the columns that the filter names, in ascending order.
    public var slots: [Int] { root.slots.sorted() }

    /// Slots of the columns whose values before the change the filter reads. If there are any, the filter is about
    /// events: no row by itself matches it or does not.
    public var oldSlots: Set<Int> { root.oldSlots }
}

indirect enum CheckedNode: Sendable {
    case test(CheckedTest)
    /// True if the change has changed the column.
    case changed(slot: Int)
    case all([CheckedNode])
    case any([CheckedNode])
    case not(CheckedNode)

    var slots: Set<Int> {
        switch self {
        case .test(let test): [test.slot]
        case .changed(let slot): [slot]
        case .all(let parts), .any(let parts): parts.reduce(into: []) { $0.formUnion($1.slots) }
        case .not(let part): part.slots
        }
    }

    var oldSlots: Set<Int> {
        switch self {
        case .test(let test): test.isOld ? [test.slot] : []
        case .changed(let slot): [slot]
        case .all(let parts), .any(let parts): parts.reduce(into: []) { $0.formUnion($1.oldSlots) }
        case .not(let part): part.oldSlots
        }
    }
}

struct CheckedTest: Sendable {
    var slot: Int
    /// True if the test is of the row before the change.
    var isOld = false
    var comparison: FilterOperator
    var isNegated: Bool
    var value: CheckedValue
}

enum CheckedValue: Sendable {
    case word(TruthWord)
    /// Elements in canonical form; nil stands for NULL. Operators other than `in` have exactly one.
    case ready([[UInt8]?])
    /// Literal that PostgreSQL must convert, as an index in `FilterCheck.literals`.
    case literal(Int)
    /// Time relative to the commit of the change, in microseconds.
    case relative(Int64)
}

/// Words that may follow the operator `is`.
enum TruthWord: String, Sendable {
    case null, `true`, `false`, unknown

    var sql: String { self == .null ? "NULL" : rawValue.uppercased() }
}

// MARK: Conditions

extension FilterCheck {
    private mutating func node(_ filter: Filter) throws(FilterRefusal) -> CheckedNode {
        switch filter {
        case .condition(let condition): return try node(condition)
        case .all(let parts): return .all(try nodes(parts))
        case .any(let parts): return .any(try nodes(parts))
        case .not(let part): return .not(try node(part))
        }
    }

    private mutating func nodes(_ filters: [Filter]) throws(FilterRefusal) -> [CheckedNode] {
        var nodes: [CheckedNode] = []
        for filter in filters { nodes.append(try node(filter)) }
        return nodes
    }

    /// Returns the slot of the column with this name, if the role may read it.
    private func slot(named name: some StringProtocol) -> Int? {
        columns.indices.first { columns[$0].name == name && !settings.hiddenSlots.contains($0) }
    }

    /// Returns the node of a condition. The name of a column comes before the other meanings of the same text: a table
    /// may have a column `changed` or `old.status`.
    private mutating func node(_ condition: FilterCondition) throws(FilterRefusal) -> CheckedNode {
        if !condition.isBare, let slot = slot(named: condition.column) {
            return .test(try test(condition, slot, isOld: false))
        }
        if condition.column == FilterCondition.changed, condition.comparison == .in { return try changed(condition) }
        let prefix = FilterCondition.oldPrefix
        guard condition.column.hasPrefix(prefix), let slot = slot(named: condition.column.dropFirst(prefix.count))
        else { throw .invalidColumn(condition.column) }
        return .test(try test(condition, slot, isOld: true))
    }

    private mutating func test(
        _ condition: FilterCondition, _ slot: Int, isOld: Bool
    ) throws(FilterRefusal) -> CheckedTest {
        let value = try value(condition, columns[slot])
        return CheckedTest(
            slot: slot, isOld: isOld, comparison: condition.comparison, isNegated: condition.isNegated, value: value)
    }

    /// Returns the node that is true if a change has changed at least one of the named columns.
    private func changed(_ condition: FilterCondition) throws(FilterRefusal) -> CheckedNode {
        var names = [condition.value]
        if !condition.isBare {
            let elements = ArrayText.elements(Array(condition.value.utf8)) ?? []
            names = elements.compactMap { $0.map { String(decoding: $0, as: UTF8.self) } }
            guard !names.isEmpty, names.count == elements.count else {
                throw .raised("`changed` filter needs names of columns, such as `changed=status` or `changed=in.(a,b)`")
            }
        }
        try checkCount(names.count)
        var slots: Set<Int> = []
        for name in names {
            guard let slot = slot(named: name) else { throw .invalidColumn(name) }
            slots.insert(slot)
        }
        let parts = slots.sorted().map { CheckedNode.changed(slot: $0) }
        precondition(!parts.isEmpty, "changes of nothing")
        let any = parts.count == 1 ? parts[0] : CheckedNode.any(parts)
        return condition.isNegated ? .not(any) : any
    }

    private mutating func value(
        _ condition: FilterCondition, _ column: ColumnFacts
    ) throws(FilterRefusal) -> CheckedValue {
        switch condition.comparison {
        case .is: return .word(try word(condition, column.type))
        case .in: return try list(condition, column.type)
        case .like, .ilike, .match, .imatch: return try pattern(condition, column)
        case .eq, .neq, .lt, .lte, .gt, .gte, .isdistinct:
            if let offset = try relativeTime(condition, column) {
                readsClock = true
                return .relative(offset)
            }
            switch try CanonicalText.of(condition.value, column.type) {
            case .ready(let bytes) where isSure(of: bytes): return .ready([bytes])
            case .ready, .ask: return ask(condition, column)
            }
        case .cs, .cd, .ov, .sl, .sr, .nxr, .nxl, .adj: return ask(condition, column)
        }
    }

    /// Returns the offset of a relative time in microseconds; nil if the value is none.
    private func relativeTime(_ condition: FilterCondition, _ column: ColumnFacts) throws(FilterRefusal) -> Int64? {
        switch condition.comparison {
        case .lt, .lte, .gt, .gte: break
        default: return nil
        }
        guard RelativeTime.fits(column.type) else { return nil }
        return try RelativeTime.offset(condition.value)
    }

    /// True if the database's encoding certainly has all characters of the text. PostgreSQL refuses a text that it
    /// cannot encode.
    private func isSure(of text: [UInt8]) -> Bool { settings.text.encoding == .utf8 || text.allSatisfy { $0 < 0x80 } }

    private func word(_ condition: FilterCondition, _ type: TypeFacts) throws(FilterRefusal) -> TruthWord {
        guard let word = TruthWord(rawValue: condition.value) else {
            throw .raised("invalid value for is filter: must be null, true, false, or unknown")
        }
        guard word == .null || type.oid == TypeOID.bool else {
            throw .raised("is \(word.rawValue) filter requires a boolean column, got \(type.name)")
        }
        return word
    }

    private mutating func list(_ condition: FilterCondition, _ type: TypeFacts) throws(FilterRefusal) -> CheckedValue {
        guard let elements = ArrayLiteral.plainElements(Array(condition.value.utf8)) else {
            return askList(condition, type)
        }
        try checkCount(elements.count)
        var ready: [[UInt8]?] = []
        for element in elements {
            guard let element else {
                ready.append(nil)
                continue
            }
            switch try CanonicalText.of(String(decoding: element, as: UTF8.self), type) {
            case .ready(let bytes) where isSure(of: bytes): ready.append(bytes)
            case .ready, .ask: return askList(condition, type)
            }
        }
        return .ready(ready)
    }

    func checkCount(_ count: Int) throws(FilterRefusal) {
        guard count <= settings.maximumListElements else {
            throw .raised("too many values for `in` filter. Maximum \(settings.maximumListElements)")
        }
    }

    private mutating func pattern(
        _ condition: FilterCondition, _ column: ColumnFacts
    ) throws(FilterRefusal) -> CheckedValue {
        guard Self.takes(condition.comparison, column.type) else {
            throw .raised(
                "operator \(condition.comparison.rawValue) requires a text-compatible column type, got \(column.type.name)"
            )
        }
        guard condition.comparison == .like || condition.comparison == .ilike,
            Comparator(column).takesPatterns(column.type)
        else { return ask(condition, column) }
        let pattern = Array(condition.value.utf8)
        guard isSure(of: pattern) else { return ask(condition, column) }
        guard !LikePattern.endsWithEscape(pattern) else { throw .endsWithEscape }
        return .ready([pattern])
    }

    /// True if the type has the operator. It accepts varchar like PostgreSQL, although Supabase Realtime does not.
    private static func takes(_ comparison: FilterOperator, _ type: TypeFacts) -> Bool {
        switch type.oid {
        case TypeOID.text, TypeOID.varchar, TypeOID.name, TypeOID.bpchar: true
        case TypeOID.bytea: comparison == .like
        // An extension's type (such as citext) may have the operator, so PostgreSQL is asked.
        case TypeOID.firstOfUsers...: type.shape == .other || type.shape == .base
        default: false
        }
    }
}

// MARK: Literals for PostgreSQL

extension FilterCheck {
    private mutating func ask(_ condition: FilterCondition, _ column: ColumnFacts) -> CheckedValue {
        let type = SQLType.operand(of: condition.comparison, on: column.type)
        var isArray = false
        if case .array = column.type.shape { isArray = true }
        let isPattern = condition.comparison == .match || condition.comparison == .imatch
        return add(
            Literal(
                typeName: type, text: condition.value, isArray: isArray,
                sql: Self.probe(type, Self.trial(condition.comparison, column)),
                complaint: isPattern ? "invalid regular expression for \(condition.comparison.rawValue) filter: " : nil)
        )
    }

    /// Returns SQL that applies the operator to the column's type, with the value on both sides.
    private static func trial(_ comparison: FilterOperator, _ column: ColumnFacts) -> String {
        "(CAST(v AS \(SQLType.name(column.type)))\(SQLType.collate(column.collation)) \(SQLType.symbol(comparison)) v)"
    }

    private mutating func askList(_ condition: FilterCondition, _ type: TypeFacts) -> CheckedValue {
        let name = SQLType.array(of: type)
        // PostgreSQL must find the operator even if the left side is NULL.
        let tried = "(CAST(NULL AS \(SQLType.name(type))) = ANY (v))"
        return add(
            Literal(
                typeName: name, text: condition.value, isArray: true, sql: Self.probe(name, tried), complaint: nil))
    }

    private mutating func add(_ literal: Literal) -> CheckedValue {
        literals.append(literal)
        return .literal(literals.count - 1)
    }

    /// Returns a query that casts the value and tries the operator. PostgreSQL then reports a missing operator
    /// immediately.
    private static func probe(_ type: String, _ tried: String) -> String {
        "SELECT v FROM (SELECT CAST($1 AS \(type)) AS v) AS literal WHERE \(tried) IS NULL OR \(tried) IS NOT NULL"
    }
}
