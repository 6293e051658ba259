extension Function {
    /// Returns the function of a built-in operator between two values; nil if the hub cannot evaluate it. `collation`
    /// is the one that PostgreSQL derives from the operands.
    ///
    /// `timeZone` matters if days are added to a timestamp, or if a timestamptz is compared with a time without a zone.
    public static func infix(
        _ name: String, _ left: TypeFacts, _ right: TypeFacts, _ collation: Collation, text: TextRules,
        timeZone: String? = nil
    ) -> Function? {
        inUTF8(name, left, right, collation, text, timeZone)?.exact(on: [left, right], text.encoding)
    }

    private static func inUTF8(
        _ name: String, _ left: TypeFacts, _ right: TypeFacts, _ collation: Collation, _ text: TextRules,
        _ timeZone: String?
    ) -> Function? {
        if let comparison = Comparison(name) { return compare(comparison, left, right, collation, timeZone) }
        switch name {
        case "+", "-", "*", "/", "%": return arithmetic(name, left, right, timeZone)
        case "->", "->>", "#>", "#>>": return field(name, left, right)
        case "?": return hasName(.one, left, right.isText)
        case "?|": return hasName(.any, left, right.isTextArray)
        case "?&": return hasName(.all, left, right.isTextArray)
        case "@>", "<@", "&&": return containment(name, left, right, collation)
        case "||": return left.isText && right.isText ? Function(.text, .concatenate) : nil
        case "~~": return like(left, right, collation, isNegated: false, .none)
        case "!~~": return like(left, right, collation, isNegated: true, .none)
        case "~~*", "!~~*":
            guard let folding = Folding(collation, text) else { return nil }
            return like(left, right, collation, isNegated: name == "!~~*", folding)
        default: return nil
        }
    }

    // MARK: Comparing

    private static func compare(
        _ comparison: Comparison, _ left: TypeFacts, _ right: TypeFacts, _ collation: Collation, _ timeZone: String?
    ) -> Function? {
        if let widths = floats(left, right) {
            return Function(.boolean, .compareFloats(comparison, widths.left, widths.right))
        }
        if areMoments(left, right, timeZone) { return Function(.boolean, .compareMoments(comparison)) }
        guard let comparator = comparator(left, right, collation), comparator.kind != .opaque,
            !comparison.isOrder || comparator.isOrdered
        else { return nil }
        return Function(.boolean, .compare(comparison, comparator, labels: comparison.isOrder ? labels(left) : []))
    }

    /// Returns the comparator of an operator on these types; nil if there is no such operator.
    private static func comparator(_ left: TypeFacts, _ right: TypeFacts, _ collation: Collation) -> Comparator? {
        let isInteger = IntegerWidth(left.oid) != nil && IntegerWidth(right.oid) != nil
        let isText = [left, right].allSatisfy { $0.isText || $0.oid == TypeOID.name }
        guard isInteger || isText || left.oid == right.oid && left.shape == right.shape else { return nil }
        return Comparator(ColumnFacts(name: "", type: left, collation: collation))
    }

    private static func floats(_ left: TypeFacts, _ right: TypeFacts) -> (left: FloatWidth, right: FloatWidth)? {
        switch (left.oid, right.oid) {
        case (TypeOID.float4, TypeOID.float8): (.single, .double)
        case (TypeOID.float8, TypeOID.float4): (.double, .single)
        default: nil
        }
    }

    private static func areMoments(_ left: TypeFacts, _ right: TypeFacts, _ timeZone: String?) -> Bool {
        let moments = [TypeOID.date, TypeOID.timestamp, TypeOID.timestamptz]
        guard left.oid != right.oid, moments.contains(left.oid), moments.contains(right.oid) else { return false }
        let isZoned = left.oid == TypeOID.timestamptz || right.oid == TypeOID.timestamptz
        return !isZoned || isUTC(timeZone)
    }

    static func isUTC(_ timeZone: String?) -> Bool {
        ["UTC", "Etc/UTC", "GMT", "Etc/GMT"].contains(timeZone)
    }

    private static func labels(_ type: TypeFacts) -> [[UInt8]] {
        guard case .enumeration(let labels) = (type.element ?? type).shape else { return [] }
        return labels.map { Array($0.utf8) }
    }

    // MARK: Other operators

    private static func arithmetic(
        _ name: String, _ left: TypeFacts, _ right: TypeFacts, _ timeZone: String?
    ) -> Function? {
        if left.oid == TypeOID.timestamptz, right.oid == TypeOID.interval, name == "+" || name == "-" {
            return Function(left, .shiftMoment(isNegative: name == "-", isUTC: isUTC(timeZone)))
        }
        guard let a = IntegerWidth(left.oid), let b = IntegerWidth(right.oid) else { return nil }
        let width = max(a, b)
        switch name {
        case "+": return Function(width.type, .arithmetic(.add, width))
        case "-": return Function(width.type, .arithmetic(.subtract, width))
        case "*": return Function(width.type, .arithmetic(.multiply, width))
        case "/": return Function(width.type, .arithmetic(.divide, width))
        // Operands of different widths have no operator for the remainder.
        default: return a == b ? Function(width.type, .arithmetic(.remainder, width)) : nil
        }
    }

    private static func field(_ name: String, _ left: TypeFacts, _ right: TypeFacts) -> Function? {
        guard left.isJSON else { return nil }
        let address: FieldAddress
        switch (name.hasPrefix("#"), right) {
        case (false, let type) where type.isText: address = .name
        case (false, let type) where type.oid == TypeOID.int4: address = .index
        case (true, let type) where type.isTextArray: address = .path
        default: return nil
        }
        let asText = name.hasSuffix(">>")
        return Function(
            asText ? .text : left, .field(address, asText: asText, isBinary: left.oid == TypeOID.jsonb))
    }

    private static func hasName(_ quantity: Quantity, _ left: TypeFacts, _ isRight: Bool) -> Function? {
        guard left.oid == TypeOID.jsonb, isRight else { return nil }
        return Function(.boolean, .hasName(quantity))
    }

    private static func containment(
        _ name: String, _ left: TypeFacts, _ right: TypeFacts, _ collation: Collation
    ) -> Function? {
        guard left.oid == right.oid, left.shape == right.shape else { return nil }
        let comparator = Comparator(ColumnFacts(name: "", type: left, collation: collation))
        guard comparator.kind != .opaque, comparator.hasContainment else { return nil }
        switch name {
        case "@>": return Function(.boolean, .contains(comparator))
        case "<@": return Function(.boolean, .isContained(comparator))
        default: return comparator.isArray ? Function(.boolean, .overlaps(comparator)) : nil
        }
    }

    private static func like(
        _ left: TypeFacts, _ right: TypeFacts, _ collation: Collation, isNegated: Bool, _ folding: Folding
    ) -> Function? {
        guard right.isText, Comparator(ColumnFacts(name: "", type: left, collation: collation)).takesPatterns(left)
        else { return nil }
        return Function(.boolean, .like(isNegated: isNegated, folding))
    }
}

extension Function.Folding {
    init?(_ collation: Collation, _ text: TextRules) {
        switch collation {
        case .bytewise: self = .plain
        case .deterministic(nil) where text.foldsASCIIPlainly: self = .ofASCII
        case .none, .deterministic, .nondeterministic: return nil
        }
    }
}
