/// Parser of texts that PostgreSQL prints. It is strict: a part that it does not understand becomes `.opaque` if it is
/// enclosed in parentheses; otherwise the parser refuses the whole text.
///
/// PostgreSQL writes keywords in capitals and quotes every name that has a capital. So the case of a word tells
/// keywords from names.
public struct PolicyParser {
    /// Maximum number of tokens in a text, which no person would write.
    static let maximumTokens = 20_000
    /// Maximum nesting of a text, which no person would write.
    static let maximumDepth = 80

    struct Unread: Error {}

    private let text: [UInt8]
    private let pieces: [PolicyLexer.Piece]
    private var at = 0
    private var depth = 0
    private var mayCarryTypes = false

    private init?(_ text: String) {
        guard let pieces = PolicyLexer.pieces(text, maximum: PolicyParser.maximumTokens) else { return nil }
        precondition(
            pieces.last?.token == .end && pieces.count <= PolicyParser.maximumTokens, "a text that does not end")
        self.text = Array(text.utf8)
        self.pieces = pieces
    }

    /// Parses an expression in the form of `pg_get_expr`; nil if it is not understood.
    public static func expression(_ text: String) -> Syntax? {
        guard var parser = PolicyParser(text) else { return nil }
        do throws(Unread) {
            let tree = try parser.expression(0)
            assert(parser.depth == 0, "a place that was not left")
            return parser.token == .end ? tree : nil
        } catch {
            return nil
        }
    }

    /// Parses a simple view in the form of `pg_get_viewdef`. If the view's own FROM is a sub-select or temporary
    /// relation with the name `argument`, it is omitted, because it only gives types to arguments.
    public static func body(_ text: String) -> Syntax.Select? {
        guard var parser = PolicyParser(text) else { return nil }
        parser.mayCarryTypes = true
        do throws(Unread) {
            let select = try parser.select()
            assert(parser.depth == 0, "a place that was not left")
            if parser.token == .mark(";") { parser.at += 1 }
            return parser.token == .end ? select : nil
        } catch {
            return nil
        }
    }

    // MARK: Tokens

    private var token: PolicyToken { pieces[at].token }

    private var following: PolicyToken { at + 1 < pieces.count ? pieces[at + 1].token : .end }

    private mutating func advance() {
        if at + 1 < pieces.count { at += 1 }
    }

    private mutating func pass(_ expected: PolicyToken) -> Bool {
        guard token == expected else { return false }
        advance()
        return true
    }

    private mutating func expect(_ expected: PolicyToken) throws(Unread) {
        guard pass(expected) else { throw Unread() }
    }

    private mutating func expect(words: String...) throws(Unread) {
        for word in words { try expect(.word(word)) }
    }

    /// True if an unquoted word is a name and not a keyword, because it has no capital.
    private static func isName(_ word: String) -> Bool { !word.utf8.contains { (0x41...0x5a).contains($0) } }

    private var isAtName: Bool {
        switch token {
        case .quotedName: true
        case .word(let word): PolicyParser.isName(word)
        default: false
        }
    }

    private mutating func name() throws(Unread) -> String {
        guard isAtName else { throw Unread() }
        defer { advance() }
        switch token {
        case .quotedName(let name): return name
        case .word(let word): return word
        default: throw Unread()
        }
    }

    // MARK: Operators

    /// Precedences of operators, in the order of PostgreSQL's grammar. A higher number binds more tightly.
    private enum Binding {
        static let or = 1
        static let and = 2
        static let not = 3
        static let test = 4
        static let comparison = 5
        static let membership = 6
        static let other = 7
        static let sum = 8
        static let product = 9
        static let power = 10
        static let timeZone = 11
        static let collation = 12
        static let sign = 13
        static let subscripts = 14
        static let cast = 15

        static func of(_ symbol: String) -> Int {
            switch symbol {
            case "<", ">", "=", "<=", ">=", "<>": comparison
            case "+", "-": sum
            case "*", "/", "%": product
            case "^": power
            default: other
            }
        }
    }

    private mutating func expression(_ minimum: Int) throws(Unread) -> Syntax {
        guard depth < PolicyParser.maximumDepth else { throw Unread() }
        depth += 1
        defer { depth -= 1 }
        var left = try operand()
        var ceiling = Int.max
        while let binding = binding(), binding >= minimum {
            // `a = b = c` is not a valid expression.
            guard binding <= ceiling else { throw Unread() }
            let before = at
            left = try goOn(from: left, binding)
            assert(at > before, "an expression that goes on without a word")
            if binding == Binding.comparison || binding == Binding.membership { ceiling = binding - 1 }
        }
        return left
    }

    /// Returns the precedence of the operator at the current position; nil if the expression ends there.
    private func binding() -> Int? {
        switch token {
        case .word("OR"): Binding.or
        case .word("AND"): Binding.and
        case .word("IS"): Binding.test
        case .word("IN"): Binding.membership
        case .word("OPERATOR"): Binding.other
        case .word("AT"): Binding.timeZone
        case .word("COLLATE"): Binding.collation
        case .symbol(let symbol): Binding.of(symbol)
        case .mark("["): Binding.subscripts
        case .mark("::"): Binding.cast
        default: nil
        }
    }

    private mutating func goOn(from left: Syntax, _ binding: Int) throws(Unread) -> Syntax {
        switch token {
        case .word("OR"): return .any(try chain(from: left, "OR", binding))
        case .word("AND"): return .all(try chain(from: left, "AND", binding))
        case .word("IS"): return try test(left)
        case .word("IN"): return try among(left)
        case .word("AT"):
            try expect(words: "AT", "TIME", "ZONE")
            return .atTimeZone(left, try expression(binding + 1))
        case .word("COLLATE"):
            advance()
            return .collate(left, try qualifiedName())
        case .mark("["):
            advance()
            let index = try expression(0)
            try expect(.mark("]"))
            return .element(left, index: index)
        case .mark("::"):
            advance()
            let type = try typeName()
            if case .literal(let value, nil) = left { return .literal(value, type: type) }
            return .cast(left, type)
        default: return try infix(left, binding)
        }
    }

    private mutating func chain(from first: Syntax, _ word: String, _ binding: Int) throws(Unread) -> [Syntax] {
        var parts = [first]
        while pass(.word(word)) { parts.append(try expression(binding + 1)) }
        assert(parts.count > 1, "a chain of one")
        return parts
    }

    private mutating func infix(_ left: Syntax, _ binding: Int) throws(Unread) -> Syntax {
        let symbol = try symbolName()
        for quantifier in [Syntax.Quantifier.any, .all] where pass(.word(quantifier.rawValue)) {
            try expect(.mark("("))
            guard token != .word("SELECT") else { throw Unread() }
            let array = try expression(0)
            try expect(.mark(")"))
            return .quantified(symbol, left, quantifier, array)
        }
        return .infix(symbol, left, try expression(binding + 1))
    }

    /// Reads an operator, such as `+` or `OPERATOR(extensions.+)`.
    private mutating func symbolName() throws(Unread) -> SyntaxName {
        if case .symbol(let symbol) = token {
            advance()
            return SyntaxName(symbol)
        }
        try expect(.word("OPERATOR"))
        try expect(.mark("("))
        let schema = try name()
        try expect(.mark("."))
        guard case .symbol(let symbol) = token else { throw Unread() }
        advance()
        try expect(.mark(")"))
        return SyntaxName(symbol, in: schema)
    }

    private mutating func test(_ left: Syntax) throws(Unread) -> Syntax {
        try expect(.word("IS"))
        let isNegated = pass(.word("NOT"))
        if pass(.word("DISTINCT")) {
            try expect(.word("FROM"))
            let distinct = Syntax.isDistinct(left, try expression(Binding.test + 1))
            return isNegated ? .not(distinct) : distinct
        }
        guard case .word(let word) = token,
            let test = Syntax.Test(rawValue: isNegated ? "IS NOT \(word)" : "IS \(word)")
        else { throw Unread() }
        advance()
        return .test(left, test)
    }

    private mutating func among(_ left: Syntax) throws(Unread) -> Syntax {
        try expect(.word("IN"))
        try expect(.mark("("))
        let select = try select()
        try expect(.mark(")"))
        return .among(left, select)
    }

    // MARK: Operands

    private mutating func operand() throws(Unread) -> Syntax {
        switch token {
        case .string(let value):
            advance()
            return .literal(value, type: nil)
        case .number(let digits):
            advance()
            return .number(digits)
        case .parameter(let number):
            advance()
            return .parameter(number)
        case .mark("("): return try understood(from: at) { parser throws(Unread) in try parser.group() }
        case .symbol(let symbol):
            advance()
            return .prefix(
                SyntaxName(symbol), try expression(symbol == "-" || symbol == "+" ? Binding.sign : Binding.other))
        case .word(let word) where !PolicyParser.isName(word): return try keyword(word)
        case .word("true"), .word("false"):
            defer { advance() }
            return .boolean(token == .word("true"))
        default: return try named()
        }
    }

    /// Reads an expression that ends with a parenthesis or bracket. If it is not understood, keeps its text as
    /// `.opaque`.
    ///
    /// An expression in parentheses does not affect how the text around it is read.
    private mutating func understood(
        from start: Int, _ read: (inout PolicyParser) throws(Unread) -> Syntax
    ) throws(Unread) -> Syntax {
        let depthBefore = depth
        do throws(Unread) {
            return try read(&self)
        } catch {
            assert(depth >= depthBefore && at >= start, "what was not understood lies ahead")
            depth = depthBefore
            at = start
            return try opaque()
        }
    }

    /// Reads names and keywords up to an opening parenthesis or bracket, and everything from there to its closing one.
    private mutating func opaque() throws(Unread) -> Syntax {
        let start = pieces[at].start
        while isAtName || token == .mark(".") || isAtKeyword { advance() }
        guard token == .mark("(") || token == .mark("[") else { throw Unread() }
        var closing: [String] = []
        repeat {
            switch token {
            case .mark("("): closing.append(")")
            case .mark("["): closing.append("]")
            case .mark(let mark) where mark == ")" || mark == "]":
                guard closing.popLast() == mark else { throw Unread() }
            case .end: throw Unread()
            default: break
            }
            advance()
        } while !closing.isEmpty
        precondition(pieces[at - 1].token == .mark(")") || pieces[at - 1].token == .mark("]"), "not whole in itself")
        return .opaque(String(decoding: text[start..<pieces[at - 1].end], as: UTF8.self))
    }

    private var isAtKeyword: Bool {
        if case .word(let word) = token { return !PolicyParser.isName(word) }
        return false
    }

    private mutating func group() throws(Unread) -> Syntax {
        try expect(.mark("("))
        if token == .word("SELECT") {
            let select = try select()
            try expect(.mark(")"))
            return .scalar(select)
        }
        let first = try expression(0)
        guard token == .mark(",") else {
            try expect(.mark(")"))
            // `(value).field` reads a field of a composite value, which the parser does not understand.
            guard token != .mark(".") else { throw Unread() }
            return first
        }
        var parts = [first]
        while pass(.mark(",")) { parts.append(try expression(0)) }
        try expect(.mark(")"))
        return .row(parts)
    }

    private mutating func keyword(_ word: String) throws(Unread) -> Syntax {
        let start = at
        switch word {
        case "NULL":
            advance()
            return .null
        case "NOT":
            advance()
            return .not(try expression(Binding.not))
        case "CASE": return try choice()
        case "ARRAY":
            return try understood(from: start) { parser throws(Unread) in try parser.array() }
        case "EXISTS":
            return try understood(from: start) { parser throws(Unread) in
                parser.advance()
                try parser.expect(.mark("("))
                let select = try parser.select()
                try parser.expect(.mark(")"))
                return .exists(select)
            }
        default: break
        }
        if let form = Syntax.SpecialForm(rawValue: word) {
            return try understood(from: start) { parser throws(Unread) in
                parser.advance()
                return .special(form, try parser.arguments())
            }
        }
        if PolicyParser.standalone.contains(word), following != .mark("(") {
            advance()
            return .keyword(word)
        }
        guard following == .mark("("), PolicyParser.wordedFunctions.contains(word) else { throw Unread() }
        return try opaque()
    }

    private static let standalone: Set<String> = [
        "CURRENT_USER", "CURRENT_ROLE", "SESSION_USER", "SYSTEM_USER", "USER", "CURRENT_DATE", "CURRENT_TIME",
        "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_CATALOG", "CURRENT_SCHEMA",
    ]

    /// Functions whose calls have a special syntax, such as `EXTRACT(dow FROM x)`.
    private static let wordedFunctions: Set<String> = [
        "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM", "NORMALIZE", "ROW", "GROUPING", "XMLCONCAT",
        "XMLELEMENT",
        "XMLFOREST", "XMLPARSE", "XMLPI", "XMLROOT", "XMLSERIALIZE", "XMLEXISTS", "JSON", "JSON_SCALAR",
        "JSON_SERIALIZE", "JSON_OBJECT", "JSON_ARRAY", "JSON_EXISTS", "JSON_VALUE", "JSON_QUERY", "CURRENT_TIME",
        "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "MERGE_ACTION",
    ]

    private mutating func choice() throws(Unread) -> Syntax {
        try expect(.word("CASE"))
        let operand = token == .word("WHEN") ? nil : try expression(0)
        var branches: [Syntax.Branch] = []
        while pass(.word("WHEN")) {
            let condition = try expression(0)
            try expect(.word("THEN"))
            branches.append(Syntax.Branch(condition: condition, value: try expression(0)))
        }
        let otherwise = pass(.word("ELSE")) ? try expression(0) : nil
        try expect(.word("END"))
        guard !branches.isEmpty else { throw Unread() }
        return .choice(operand: operand, branches, otherwise: otherwise)
    }

    private mutating func array() throws(Unread) -> Syntax {
        try expect(.word("ARRAY"))
        if pass(.mark("(")) {
            let select = try select()
            try expect(.mark(")"))
            return .arrayOf(select)
        }
        try expect(.mark("["))
        return .array(try list(until: "]"))
    }

    private mutating func arguments() throws(Unread) -> [Syntax] {
        try expect(.mark("("))
        return try list(until: ")")
    }

    private mutating func list(until end: String) throws(Unread) -> [Syntax] {
        if pass(.mark(end)) { return [] }
        var parts: [Syntax] = []
        repeat { parts.append(try expression(0)) } while pass(.mark(","))
        try expect(.mark(end))
        return parts
    }

    /// Reads a column or a function call.
    private mutating func named() throws(Unread) -> Syntax {
        let start = at
        var names = [try name()]
        while names.count < 4, pass(.mark(".")) { names.append(try name()) }
        guard token == .mark("(") else {
            guard names.count < 4, token != .mark("."), !isAtString else { throw Unread() }
            return .column(qualifier: Array(names.dropLast()), name: names[names.count - 1])
        }
        assert(!names.isEmpty && names.count <= 4, "a name of nothing")
        guard names.count <= 2 else { throw Unread() }
        let called = SyntaxName(names[names.count - 1], in: names.count == 2 ? names[0] : nil)
        return try understood(from: start) { parser throws(Unread) in
            .call(called, try parser.arguments())
        }
    }

    private var isAtString: Bool {
        if case .string = token { return true }
        return false
    }

    private mutating func qualifiedName() throws(Unread) -> SyntaxName {
        let first = try name()
        guard pass(.mark(".")) else { return SyntaxName(first) }
        return SyntaxName(try name(), in: first)
    }
}

// MARK: Sub-selects

extension PolicyParser {
    private mutating func select() throws(Unread) -> Syntax.Select {
        guard depth < PolicyParser.maximumDepth else { throw Unread() }
        depth += 1
        defer { depth -= 1 }
        try expect(.word("SELECT"))
        var select = Syntax.Select(outputs: [])
        // `EXISTS (SELECT FROM …)` has no output columns.
        if token != .word("FROM") {
            repeat { select.outputs.append(try output()) } while pass(.mark(","))
        }
        if pass(.word("FROM")) { select.source = try source() }
        guard !select.outputs.isEmpty || select.source != nil else { throw Unread() }
        if pass(.word("WHERE")) { select.condition = try expression(0) }
        return select
    }

    private mutating func output() throws(Unread) -> Syntax.Output {
        let value = try expression(0)
        guard pass(.word("AS")) else { return Syntax.Output(value: value) }
        return Syntax.Output(value: value, alias: try name())
    }

    private mutating func source() throws(Unread) -> Syntax.Source? {
        let isOutermost = mayCarryTypes && depth == 1
        if isOutermost, token == .mark("(") {
            _ = try opaque()
            guard try name() == "argument" else { throw Unread() }
            return nil
        }
        var source = Syntax.Source(table: try qualifiedName())
        if token == .mark("(") { source.arguments = try arguments() }
        if isAtName { source.alias = try name() }
        if isOutermost, source.arguments == nil, source.table.schema?.hasPrefix("pg_temp") == true,
            (source.alias ?? source.table.name) == "argument"
        {
            return nil
        }
        guard pass(.mark("(")) else { return source }
        // The parser does not understand a table whose columns are renamed.
        guard source.arguments != nil else { throw Unread() }
        repeat { source.columns.append(try name()) } while pass(.mark(","))
        try expect(.mark(")"))
        return source
    }
}

// MARK: Types

extension PolicyParser {
    private mutating func typeName() throws(Unread) -> TypeName {
        var type = try baseType()
        while token == .mark("["), following == .mark("]") {
            advance()
            advance()
            type.isArray = true
        }
        return type
    }

    private mutating func baseType() throws(Unread) -> TypeName {
        if case .word(let word) = token, following != .mark("."), PolicyParser.isName(word) {
            advance()
            return try wordedType(word)
        }
        var base = try quoted()
        if pass(.mark(".")) { base += "." + (try quoted()) }
        return TypeName(base, written: base + (try modifier()))
    }

    /// Reads a name and returns it as `quote_identifier` wrote it.
    private mutating func quoted() throws(Unread) -> String {
        let name = pieces[at]
        _ = try self.name()
        return String(decoding: text[name.start..<name.end], as: UTF8.self)
    }

    private mutating func wordedType(_ word: String) throws(Unread) -> TypeName {
        switch word {
        case "double":
            try expect(.word("precision"))
            return TypeName("double precision")
        case "character", "bit":
            let base = pass(.word("varying")) ? word + " varying" : word
            return TypeName(base, written: base + (try modifier()))
        case "timestamp", "time":
            let precision = try modifier()
            let kind = token == .word("with") ? "with" : "without"
            try expect(words: kind, "time", "zone")
            let zone = " \(kind) time zone"
            return TypeName(word + zone, written: word + precision + zone)
        case "interval":
            var written = word
            while case .word(let field) = token, PolicyParser.intervalFields.contains(field) {
                written += " " + field
                advance()
            }
            return TypeName(word, written: written + (try modifier()))
        default: return TypeName(word, written: word + (try modifier()))
        }
    }

    private static let intervalFields: Set<String> = ["year", "month", "day", "hour", "minute", "second", "to"]

    /// Reads a type modifier such as `(10,2)`. Returns an empty text if there is none.
    private mutating func modifier() throws(Unread) -> String {
        let start = at
        guard pass(.mark("(")) else { return "" }
        repeat {
            switch token {
            case .number, .word: advance()
            default: throw Unread()
            }
        } while pass(.mark(","))
        try expect(.mark(")"))
        return String(decoding: text[pieces[start].start..<pieces[at - 1].end], as: UTF8.self)
    }
}
