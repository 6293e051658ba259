extension Function {
    /// Returns the function of a cast `value::type`, also if the cast does not change the text, such as varchar to
    /// text. Nil if the hub cannot evaluate it.
    public static func cast(
        _ from: TypeFacts, to type: TypeFacts, text: TextRules.Encoding, timeZone: String?
    ) -> Function? {
        inUTF8(from, type, timeZone)?.exact(on: [from], text)
    }

    private static func inUTF8(_ from: TypeFacts, _ type: TypeFacts, _ timeZone: String?) -> Function? {
        // A type with a length truncates, pads or refuses values.
        guard !type.name.contains("(") else { return nil }
        if from.oid == type.oid, from.shape == type.shape { return Function(type, .relabel) }
        return operation(from, type, timeZone).map { Function(type, $0) }
    }

    private static func operation(_ from: TypeFacts, _ type: TypeFacts, _ timeZone: String?) -> Operation? {
        if from.isText { return ofText(type) }
        if let element = from.element { return ofArray(element, type) }
        switch from.shape {
        case .enumeration: return type.isText ? .relabel : nil
        case .array, .other: return nil
        case .base: return ofBase(from.oid, type, timeZone)
        }
    }

    private static func ofText(_ type: TypeFacts) -> Operation? {
        if case .enumeration = type.shape { return .parse }
        if type.isTextArray { return .parse }
        guard type.shape == .base else { return nil }
        switch type.oid {
        case TypeOID.text, TypeOID.varchar, TypeOID.bpchar: return .relabel
        case TypeOID.name: return .name
        case TypeOID.uuid, TypeOID.int2, TypeOID.int4, TypeOID.int8, TypeOID.numeric, TypeOID.bool: return .parse
        case TypeOID.json: return .parseJSON(isBinary: false)
        case TypeOID.jsonb: return .parseJSON(isBinary: true)
        default: return nil
        }
    }

    /// Returns a cast between arrays whose elements keep their texts, such as `varchar[]` to `text[]`; nil for other
    /// casts.
    private static func ofArray(_ element: TypeFacts, _ type: TypeFacts) -> Operation? {
        guard let other = type.element, element.shape == .base, other.shape == .base else { return nil }
        return operation(element, other, nil) == .relabel ? .relabel : nil
    }

    private static func ofBase(_ oid: UInt32, _ type: TypeFacts, _ timeZone: String?) -> Operation? {
        guard type.shape == .base else { return nil }
        switch oid {
        case TypeOID.int2, TypeOID.int4, TypeOID.int8: return ofInteger(oid, type)
        case TypeOID.uuid, TypeOID.name: return type.isText ? .relabel : nil
        case TypeOID.bpchar: return type.isText ? .withoutBlanks : nil
        case TypeOID.bool: return type.isText ? .truthWord : nil
        case TypeOID.numeric: return float(type)
        case TypeOID.date where type.oid == TypeOID.timestamp: return .midnight
        case TypeOID.timestamp where type.oid == TypeOID.timestamptz && isUTC(timeZone):
            return .zoneOfUTC(isAdded: true)
        case TypeOID.timestamptz where type.oid == TypeOID.timestamp && isUTC(timeZone):
            return .zoneOfUTC(isAdded: false)
        default: return nil
        }
    }

    private static func ofInteger(_ oid: UInt32, _ type: TypeFacts) -> Operation? {
        if type.isText || type.oid == TypeOID.numeric { return .relabel }
        guard let width = IntegerWidth(oid), let other = IntegerWidth(type.oid) else { return float(type) }
        return width <= other ? .relabel : .narrow(other)
    }

    private static func float(_ type: TypeFacts) -> Operation? {
        switch type.oid {
        case TypeOID.float4: .float(.single)
        case TypeOID.float8: .float(.double)
        default: nil
        }
    }
}
