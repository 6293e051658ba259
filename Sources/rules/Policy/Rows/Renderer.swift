/// Writer that turns a tree into SQL. It writes more parentheses than PostgreSQL, and every name as the tree has it.
public struct Renderer {
    public enum Style: Sendable {
        /// Names are qualified if the tree qualifies them. This form is for sessions with `search_path = pg_catalog`,
        /// and for people.
        case asWritten
        /// Functions, operators, collations and tables of `pg_catalog` are qualified too. This form means the same in
        /// any session.
        case qualified
    }

    private let style: Style
    private var text = ""

    private init(_ style: Style) { self.style = style }

    public static func text(_ tree: Syntax, _ style: Style = .asWritten) -> String {
        var renderer = Renderer(style)
        renderer.write(tree)
        return renderer.text
    }

    public static func text(_ select: Syntax.Select, _ style: Style = .asWritten) -> String {
        var renderer = Renderer(style)
        renderer.write(select)
        return renderer.text
    }

    /// Returns a name in quotes, even if it does not need them.
    public static func quoted(_ name: String) -> String { wrapped(name, "\"") }

    public static func literal(_ value: String) -> String { wrapped(value, "'") }

    private static func wrapped(_ value: String, _ quote: Character) -> String {
        var text = String(quote)
        for character in value.unicodeScalars {
            text.unicodeScalars.append(character)
            if Character(character) == quote { text.unicodeScalars.append(character) }
        }
        text.append(quote)
        precondition(text.unicodeScalars.count { Character($0) == quote }.isMultiple(of: 2), "a quote that stays open")
        return text
    }

    private func qualified(_ name: SyntaxName) -> String {
        let schema = name.schema ?? (style == .qualified ? "pg_catalog" : nil)
        return (schema.map { Renderer.quoted($0) + "." } ?? "") + Renderer.quoted(name.name)
    }

    static func type(_ type: TypeName) -> String { type.written + (type.isArray ? "[]" : "") }

    // MARK: Expressions

    private mutating func write(_ tree: Syntax) {
        switch tree {
        case .literal(let value, let type):
            text += Renderer.literal(value)
            if let type { text += "::" + Renderer.type(type) }
        case .number(let digits): text += digits
        case .boolean(let value): text += value ? "true" : "false"
        case .null: text += "NULL"
        case .column(let qualifier, let name):
            text += (qualifier + [name]).map(Renderer.quoted).joined(separator: ".")
        case .parameter(let number): text += "$\(number)"
        case .call(let name, let arguments): write(qualified(name), arguments)
        case .special(let form, let arguments): write(form.rawValue, arguments)
        case .keyword(let word): text += word
        case .array(let parts):
            text += "ARRAY["
            write(list: parts)
            text += "]"
        case .row(let parts): write("ROW", parts)
        case .arrayOf(let select): write("ARRAY", select)
        case .exists(let select): write("EXISTS ", select)
        case .scalar(let select): write("", select)
        case .opaque(let verbatim): text += verbatim
        default: writeComposed(tree)
        }
    }

    /// Writes an expression in parentheses.
    private mutating func writeComposed(_ tree: Syntax) {
        text += "("
        switch tree {
        case .cast(let value, let type):
            write(value)
            text += ")::" + Renderer.type(type)
            return
        case .element(let value, let index):
            write(value)
            text += ")["
            write(index)
            text += "]"
            return
        case .choice(let operand, let branches, let otherwise): write(operand, branches, otherwise)
        case .among(let value, let select):
            write(value)
            write(" IN ", select)
        case .infix(let symbol, let left, let right):
            write(left)
            text += " " + self.symbol(symbol) + " "
            write(right)
        case .prefix(let symbol, let value):
            text += self.symbol(symbol) + " "
            write(value)
        case .quantified(let symbol, let value, let quantifier, let array):
            write(value)
            text += " " + self.symbol(symbol) + " " + quantifier.rawValue + " ("
            write(array)
            text += ")"
        case .test(let value, let test):
            write(value)
            text += " " + test.rawValue
        case .isDistinct(let left, let right):
            write(left)
            text += " IS DISTINCT FROM "
            write(right)
        case .collate(let value, let collation):
            write(value)
            text += " COLLATE " + qualified(collation)
        case .atTimeZone(let value, let zone):
            write(value)
            text += " AT TIME ZONE "
            write(zone)
        case .not(let value):
            text += "NOT "
            write(value)
        case .all(let parts): write(list: parts, " AND ")
        case .any(let parts): write(list: parts, " OR ")
        default: preconditionFailure("written by the other half")
        }
        text += ")"
    }

    private func symbol(_ name: SyntaxName) -> String {
        guard let schema = name.schema ?? (style == .qualified ? "pg_catalog" : nil) else { return name.name }
        return "OPERATOR(" + Renderer.quoted(schema) + "." + name.name + ")"
    }

    private mutating func write(_ name: String, _ arguments: [Syntax]) {
        text += name + "("
        write(list: arguments)
        text += ")"
    }

    private mutating func write(list parts: [Syntax], _ separator: String = ", ") {
        for (index, part) in parts.enumerated() {
            if index > 0 { text += separator }
            write(part)
        }
    }

    private mutating func write(_ operand: Syntax?, _ branches: [Syntax.Branch], _ otherwise: Syntax?) {
        text += "CASE"
        if let operand {
            text += " "
            write(operand)
        }
        for branch in branches {
            text += " WHEN "
            write(branch.condition)
            text += " THEN "
            write(branch.value)
        }
        if let otherwise {
            text += " ELSE "
            write(otherwise)
        }
        text += " END"
    }

    // MARK: Sub-selects

    private mutating func write(_ head: String, _ select: Syntax.Select) {
        text += head + "("
        write(select)
        text += ")"
    }

    private mutating func write(_ select: Syntax.Select) {
        text += "SELECT "
        for (index, output) in select.outputs.enumerated() {
            if index > 0 { text += ", " }
            write(output.value)
            if let alias = output.alias { text += " AS " + Renderer.quoted(alias) }
        }
        if let source = select.source {
            text += " FROM " + qualified(source.table)
            if let arguments = source.arguments { write("", arguments) }
            if let alias = source.alias { text += " " + Renderer.quoted(alias) }
            if !source.columns.isEmpty {
                text += "(" + source.columns.map(Renderer.quoted).joined(separator: ", ") + ")"
            }
        }
        guard let condition = select.condition else { return }
        text += " WHERE "
        write(condition)
    }
}
