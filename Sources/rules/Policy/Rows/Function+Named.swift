extension Function {
    /// Returns the function of `pg_catalog` with this name and these argument types; nil if the hub cannot evaluate it.
    public static func named(
        _ name: String, _ arguments: [TypeFacts], _ collation: Collation, text: TextRules
    ) -> Function? {
        inUTF8(name, arguments, collation, text)?.exact(on: arguments, text.encoding)
    }

    private static func inUTF8(
        _ name: String, _ arguments: [TypeFacts], _ collation: Collation, _ text: TextRules
    ) -> Function? {
        switch name {
        case "now", "transaction_timestamp": arguments.isEmpty ? Function(.timestamptz, .moment) : nil
        case "lower", "upper": fold(name, arguments, collation, text)
        case "array_length" where arguments.count == 2 && arguments[1].oid == TypeOID.int4:
            ofArray(.arrayLength, arguments)
        case "cardinality" where arguments.count == 1: ofArray(.cardinality, arguments)
        default: isBytewise(collation) ? ofText(name, arguments) : nil
        }
    }

    private static func fold(
        _ name: String, _ arguments: [TypeFacts], _ collation: Collation, _ text: TextRules
    ) -> Function? {
        guard arguments.count == 1, arguments[0].isText, let folding = Folding(collation, text) else {
            return nil
        }
        return Function(.text, .fold(isUpper: name == "upper", folding))
    }

    private static func ofArray(_ operation: Operation, _ arguments: [TypeFacts]) -> Function? {
        arguments[0].element == nil ? nil : Function(.integer, operation)
    }

    /// True if texts are equal exactly when their bytes are. Searching a text in another depends on that.
    private static func isBytewise(_ collation: Collation) -> Bool {
        switch collation {
        case .bytewise, .deterministic: true
        case .none, .nondeterministic: false
        }
    }

    private static func ofText(_ name: String, _ arguments: [TypeFacts]) -> Function? {
        let texts = arguments.prefix { $0.isText }.count
        switch (name, arguments.count, texts) {
        case ("string_to_array", 2, 2): return Function(.textArray, .split)
        case ("split_part", 3, 2) where arguments[2].oid == TypeOID.int4: return Function(.text, .part)
        case ("length", 1, 1), ("char_length", 1, 1), ("character_length", 1, 1): return Function(.integer, .length)
        case ("btrim", 1...2, arguments.count): return Function(.text, .trim(start: true, end: true))
        case ("ltrim", 1...2, arguments.count): return Function(.text, .trim(start: true, end: false))
        case ("rtrim", 1...2, arguments.count): return Function(.text, .trim(start: false, end: true))
        case ("replace", 3, 3): return Function(.text, .replace)
        case ("starts_with", 2, 2): return Function(.boolean, .startsWith)
        default: return nil
        }
    }
}
