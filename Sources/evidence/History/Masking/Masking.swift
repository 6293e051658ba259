import Bytes
import Change

/// Decision which values of a log are masked: rules, columns to hide in addition, and columns that the user asked to
/// see.
///
/// Each `HistoryLog` has one. Everything read from the log is masked, so no command can forget to mask. Equal values
/// have equal marks within one run of a program. Marks of two runs differ, unless the user gives a key.
public final class Masking: Sendable {
    public let rules: MaskRules
    /// Columns that are always hidden, without regard to the rules.
    public let hidden: [ColumnMask]
    /// Columns that are always shown, without regard to the rules.
    public let shown: [ColumnMask]
    private let key: SipHash

    /// Creates a masking by rules, with columns to hide or show in any case.
    ///
    /// - Parameter key: secret from which marks are made. With the same key, marks are the same in every run.
    public init(
        _ rules: MaskRules = .usual, hiding hidden: [ColumnMask] = [], showing shown: [ColumnMask] = [],
        key: (UInt64, UInt64)? = nil
    ) {
        self.rules = rules
        self.hidden = hidden
        self.shown = shown
        self.key = SipHash(key: key ?? (UInt64.random(in: 0 ... .max), UInt64.random(in: 0 ... .max)))
    }

    /// Masking that hides nothing, for code that shows no values.
    public static let nothing = Masking(.none)

    /// True if a column, or a name inside a JSON value, is masked. `tables` are all names that the table had: a column
    /// that is masked under one of them is masked under all. The same holds for columns that the user asked to see.
    public func masks(_ column: String, of tables: some Collection<TableName>) -> Bool {
        if hidden.contains(where: { mask in tables.contains { mask.covers(column, of: $0) } }) { return true }
        if shown.contains(where: { mask in tables.contains { mask.covers(column, of: $0) } }) { return false }
        return tables.contains { rules.masks(column, of: $0) }
    }

    public func masks(_ column: String, of table: TableName) -> Bool { masks(column, of: [table]) }

    /// True if nothing is ever masked.
    public var isNothing: Bool { hidden.isEmpty && (rules.rules.isEmpty || shown.contains { $0.isEverything }) }

    /// True if the masking depends on table names. All names that a table had then matter.
    var knowsTables: Bool {
        (hidden + shown).contains { $0.table != nil } || rules.namesTables
    }

    // MARK: Marks

    /// Returns a keyed 64-bit hash of the bytes; equal bytes have equal tags.
    public func tag(_ bytes: [UInt8]) -> UInt64 {
        // Only the user who gave the key can compute the hash, so a mark reveals nothing about its value.
        key.hash(bytes.rawBytes)
    }

    /// Returns the mark that replaces a masked value.
    public func mark(_ bytes: [UInt8]) -> String { MaskMark.text(tag(bytes)) }

    // MARK: Values

    /// Returns a JSON value in which the values under masked names are replaced.
    public func lookingInto(_ bytes: [UInt8], of tables: some Collection<TableName>) -> [UInt8] {
        guard MaskedJSON.mayBe(bytes) else { return bytes }
        switch MaskedJSON(isMasked: { self.masks($0, of: tables) }, mark: mark).masking(bytes) {
        case .same: return bytes
        case .masked(let masked): return masked
        // A value that only begins as JSON, such as an array of it, is masked as a whole if it mentions a masked name.
        case .unreadable: return mentions(bytes, of: tables) ? Array(mark(bytes).utf8) : bytes
        }
    }

    /// Returns a value in masked form. NULL stays visible as NULL.
    func shown(_ value: RowValue, of column: Column, _ tables: some Collection<TableName>) -> RowValue {
        guard case .text(let bytes) = value else { return value }
        if isOfFields(bytes, column), !isAskedFor(column.name, of: tables) { return .masked(tag(bytes)) }
        if Self.holdsNames.contains(column.typeOID) || column.typeName == "hstore" {
            return structured(bytes, column, tables)
        }
        let masked = lookingInto(bytes, of: tables)
        return masked == bytes ? value : .text(masked)
    }

    /// True if `shown` may change a value that has this text; false only if it certainly returns the value unchanged.
    func mayLookInto(_ text: RawSpan, of column: Column) -> Bool {
        Self.holdsNames.contains(column.typeOID) || column.typeName == "hstore" || MaskedJSON.mayBe(text)
            || column.typeOID >= 16_384
    }

    /// Oids of the types whose values contain names: json, jsonb, xml, and arrays of them.
    private static let holdsNames: Set<UInt32> = [114, 3802, 142, 199, 3807, 143]

    /// True if the value has fields (as a composite type has) whose names are not in the log, or is an array of such
    /// values. Each field may be one that has to be masked.
    private func isOfFields(_ bytes: [UInt8], _ column: Column) -> Bool {
        guard column.typeOID >= 16_384, !isNothing else { return false }
        return bytes.first == UInt8(ascii: "(") || bytes.starts(with: Array("{(".utf8))
            || bytes.starts(with: Array("{\"(".utf8))
    }

    /// True if the user asked to see the column.
    private func isAskedFor(_ column: String, of tables: some Collection<TableName>) -> Bool {
        shown.contains { mask in tables.contains { mask.covers(column, of: $0) } }
    }

    /// Returns a value whose type has names in it, with the values under masked names replaced.
    private func structured(_ bytes: [UInt8], _ column: Column, _ tables: some Collection<TableName>) -> RowValue {
        if column.typeOID == 114 || column.typeOID == 3802 {
            switch MaskedJSON(isMasked: { self.masks($0, of: tables) }, mark: mark).masking(bytes) {
            case .same: return .text(bytes)
            case .masked(let masked): return .text(masked)
            case .unreadable: break
            }
        }
        // A value in another format is not parsed. It is masked as a whole if it contains a masked name.
        return mentions(bytes, of: tables) ? .masked(tag(bytes)) : .text(bytes)
    }

    /// True if a text contains a masked name as a word.
    public func mentions(_ text: [UInt8], of tables: some Collection<TableName>) -> Bool {
        firstMention(text, of: tables) != nil
    }

    /// Returns the range of the first word that is a masked name; nil if there is none.
    private func firstMention(_ text: [UInt8], of tables: some Collection<TableName>) -> Range<Int>? {
        var start: Int?
        for index in 0...text.count {
            let isLetter = index < text.count && Self.isOfName(text[index])
            if isLetter, start == nil { start = index }
            if !isLetter, let begun = start {
                if masks(String(decoding: text[begun..<index], as: UTF8.self), of: tables) { return begun..<index }
                start = nil
            }
        }
        return nil
    }

    private static func isOfName(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"), 0x80...0xff:
            true
        default: false
        }
    }

    /// Returns a filter's text up to the first value that a masked column is compared with; that value and all after it
    /// are replaced.
    public func filter(_ text: String, of table: TableName) -> String {
        let bytes = Array(text.utf8)
        guard let name = firstMention(bytes, of: [table]) else { return text }
        return String(decoding: bytes[..<name.upperBound], as: UTF8.self) + "=" + mark(Array(bytes[name.upperBound...]))
    }
}

/// Text that replaces a masked value: a sign and the tag of the value.
public enum MaskMark {
    public static let sign = "***"
    /// Number of digits of a mark in short output. It is enough to tell the values on one screen apart.
    private static let shortDigits = 8

    public static func text(_ tag: UInt64) -> String { sign + " " + Hex.text(tag) }
    /// True if a text is a mask mark. A bundle has marks in place of masked values.
    public static func isMark(_ text: some Collection<UInt8>) -> Bool {
        text.count == sign.utf8.count + 17 && text.starts(with: Array((sign + " ").utf8))
            && text.dropFirst(sign.utf8.count + 1).allSatisfy { (48...57).contains($0) || (97...102).contains($0) }
    }

    public static func short(_ tag: UInt64) -> String { sign + " " + Hex.text(tag).prefix(shortDigits) }
}

/// Names by which rules and masks refer to data that is not in rows.
extension TableName {
    /// Claims from the tokens of clients that joined.
    public static let claims = TableName(schema: "tidewire", name: "claims")
    /// State that clients publish by presence.
    public static let presence = TableName(schema: "tidewire", name: "presence")
    /// Messages written with pg_logical_emit_message. Rules name the prefixes in place of columns.
    public static let logicalMessage = TableName(schema: "tidewire", name: "message")
}
