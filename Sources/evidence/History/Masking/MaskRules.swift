import Bytes
import Change

/// Rules that decide by name which columns are masked. The last rule that fits a column wins.
///
/// ```
/// # one rule per line
/// *.pin                   column pin of any table       (as does: pin)
/// patients.diagnosis      column of the table in any schema
/// app.patients.*          every column of a table
/// !public.notes.email     exception: this column is not masked
/// !*                      cancels all rules above, and the usual ones
/// ```
///
/// `*` stands for any characters. Upper and lower case are equal, and so are `_`, `-` and a space. Names with dots,
/// spaces or signs need double quotes. A file's rules follow the usual ones (`usualText`). A name inside a JSON value
/// counts as a column of its table. A line `---` separates sets of rules: a value that one of the sets masks is masked,
/// whatever the others except.
public struct MaskRules: Sendable, Hashable {
    struct Rule: Sendable, Hashable {
        var schema: NamePattern?
        var table: NamePattern?
        var column: NamePattern
        var isException: Bool

        /// True if the rule applies to this column of the table.
        ///
        /// - Parameter name: normalized by `NamePattern.small`.
        func fits(_ name: [UInt8], of tableName: TableName) -> Bool {
            column.fits(name) && (table?.fits(NamePattern.small(tableName.name)) ?? true)
                && (schema?.fits(NamePattern.small(tableName.schema)) ?? true)
        }
    }

    private(set) var rules: [Rule]
    /// Further sets of rules, which apply in addition to `rules`. An exception in one set has no effect on another set.
    private var others: [[Rule]] = []

    /// Text of the rules as in a file, without the usual rules. Rules that are parsed from it mask the same values.
    public private(set) var text = ""

    private init(rules: [Rule]) { self.rules = rules }

    private static let separator = "---"

    /// Returns rules that mask every value that either set of rules masks.
    public func joined(with other: MaskRules) -> MaskRules {
        if self == other { return self }
        var joined = self
        joined.others += [other.rules] + other.others
        joined.text += "\n\(Self.separator)\n" + other.text
        return joined
    }

    /// True if any rule applies only to tables of a certain name.
    var namesTables: Bool { ([rules] + others).joined().contains { $0.table != nil } }

    /// Rules that mask nothing.
    public static let none = MaskRules(rules: [])

    /// Well-known names of sensitive columns, in the form of a file of rules.
    public static let usualText = """
        *email*
        *e_mail*
        *password*
        *passwd*
        *passphrase*
        *secret*
        *token*
        *api_key*
        *apikey*
        *private_key*
        *privatekey*
        *phone*
        mobile
        *mobile_number*
        *address*
        !addressee
        !addressee_id
        *street*
        *birth*
        *passport*
        *card_number*
        *cardnumber*
        *credit_card*
        *creditcard*
        *authorization*
        *cookie*
        iban
        *_iban
        ssn
        *_ssn
        cvc
        cvv
        otp
        *_otp
        tax_id
        realtime.messages*.binary_payload
        """

    public static let usual: MaskRules = {
        guard let rules = try? MaskRules(usualText, after: .none) else {
            preconditionFailure("the usual rules are rules")
        }
        return rules
    }()

    /// Reads the rules of a file and puts them after the usual rules.
    public init(file text: String) throws(MaskRulesError) {
        try self.init(text, after: .usual)
        self.text = text
    }

    private init(_ text: String, after earlier: MaskRules) throws(MaskRulesError) {
        rules = earlier.rules
        var sets: [[Rule]] = []
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            let words = line.prefix { $0 != "#" }.drop(while: \.isWhitespace)
            let trimmed = String(words.reversed().drop(while: \.isWhitespace).reversed())
            guard !trimmed.isEmpty else { continue }
            if trimmed == Self.separator {
                sets.append(rules)
                rules = earlier.rules
                continue
            }
            guard let rule = Rule(trimmed) else { throw MaskRulesError(line: index + 1, text: trimmed) }
            rules.append(rule)
            guard rules.count + sets.count <= Self.mostRules else { throw MaskRulesError(line: index + 1, text: nil) }
        }
        others = sets
    }

    private static let mostRules = 10_000

    /// True if a column of that name is masked in that table.
    public func masks(_ column: String, of table: TableName) -> Bool {
        let name = NamePattern.small(column)
        return ([rules] + others).contains { rules in
            rules.last { $0.fits(name, of: table) }.map { !$0.isException } ?? false
        }
    }
}

/// Error for a line in a file of rules that is not a valid rule.
public struct MaskRulesError: Error, Sendable, Equatable, CustomStringConvertible {
    public let line: Int
    /// Text of the invalid line; nil if the file has too many rules.
    public let text: String?

    public var description: String {
        guard let text else { return "line \(line): there are too many rules" }
        return "line \(line): \(text) is no rule: expected column, table.column or schema.table.column, "
            + "* for any characters, ! before an exception"
    }
}

extension MaskRules.Rule {
    fileprivate init?(_ text: String) {
        isException = text.hasPrefix("!")
        let rest = String(text.dropFirst(isException ? 1 : 0).drop(while: \.isWhitespace))
        guard let parts = QualifiedName.parts(rest), (1...3).contains(parts.count) else { return nil }
        column = NamePattern(parts[parts.count - 1])
        table = parts.count > 1 ? NamePattern(parts[parts.count - 2]) : nil
        schema = parts.count > 2 ? NamePattern(parts[0]) : nil
    }
}

/// A name in which `*` stands for any number of characters, including none.
struct NamePattern: Sendable, Hashable {
    private let pieces: [[UInt8]]

    init(_ text: String) {
        pieces = text.split(separator: "*", omittingEmptySubsequences: false).map { Self.small(String($0)) }
    }

    /// Returns the name in lower case, with `-` and spaces replaced by `_`.
    static func small(_ name: String) -> [UInt8] {
        name.lowercased().utf8.map { $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: " ") ? UInt8(ascii: "_") : $0 }
    }

    /// True if the name matches the pattern.
    ///
    /// - Parameter name: normalized by `NamePattern.small`.
    func fits(_ name: [UInt8]) -> Bool {
        guard let first = pieces.first, let last = pieces.last, name.starts(with: first) else { return false }
        guard pieces.count > 1 else { return name.count == first.count }
        guard name.count >= first.count + last.count, name.suffix(last.count).elementsEqual(last) else { return false }
        var rest = name[first.count..<name.count - last.count]
        for piece in pieces.dropFirst().dropLast() where !piece.isEmpty {
            guard let place = Self.place(of: piece, in: rest) else { return false }
            rest = rest[(place + piece.count)...]
        }
        return true
    }

    private static func place(of piece: [UInt8], in bytes: ArraySlice<UInt8>) -> Int? {
        guard bytes.count >= piece.count else { return nil }
        return (bytes.startIndex...bytes.endIndex - piece.count).first { bytes[$0...].starts(with: piece) }
    }
}
