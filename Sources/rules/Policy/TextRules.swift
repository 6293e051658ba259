/// Rules by which the database encodes text and changes its case, as far as the hub must know them to handle text like
/// PostgreSQL.
///
/// The hub receives all text in UTF-8. PostgreSQL counts, truncates and orders text in the database's own encoding.
public struct TextRules: Sendable, Hashable {
    public enum Encoding: Sendable, Hashable {
        case utf8
        /// An encoding in which different texts have different UTF-8 forms, so that the hub can compare bytes for
        /// equality. PostgreSQL decides where characters or order matter.
        case oneToOne
        /// An encoding in which two texts may have the same UTF-8 form. Only PostgreSQL can compare them.
        case other
    }

    public var encoding: Encoding
    /// True if `lower` and `upper` map the 26 ASCII letters to each other under the database's own ctype, as under C.
    /// That is false for the Turkish ctype.
    public var foldsASCIIPlainly: Bool

    public init(_ encoding: Encoding, foldsASCIIPlainly: Bool) {
        self.encoding = encoding
        self.foldsASCIIPlainly = foldsASCIIPlainly
    }

    /// Rules of a common database: UTF-8, and ASCII letters as under C.
    public static let plainUTF8 = TextRules(.utf8, foldsASCIIPlainly: true)
    /// Rules of a database about which the hub knows nothing.
    public static let unknown = TextRules(.other, foldsASCIIPlainly: false)
}

extension TextRules.Encoding {
    /// Creates the encoding from the name that `getdatabaseencoding` returns.
    public init(server name: String) {
        switch name {
        case "UTF8": self = .utf8
        // In these encodings, one byte is one character, and different bytes are different characters. SQL_ASCII
        // converts nothing.
        case "SQL_ASCII", "KOI8R", "KOI8U": self = .oneToOne
        case _ where ["LATIN", "ISO_8859_", "WIN"].contains { name.hasPrefix($0) }: self = .oneToOne
        default: self = .other
        }
    }
}

extension Function {
    /// Returns the function if the hub treats texts in this encoding like PostgreSQL; otherwise nil.
    func exact(on arguments: [TypeFacts], _ encoding: TextRules.Encoding) -> Function? {
        switch encoding {
        case .utf8: self
        case _ where arguments.allSatisfy(\.isWrittenInASCII): self
        case .oneToOne: operation.takesTextsAsWholes ? self : nil
        case .other: nil
        }
    }
}

extension Function.Operation {
    /// True if the operation only compares or passes on whole texts.
    fileprivate var takesTextsAsWholes: Bool {
        switch self {
        case .compare(let comparison, let comparator, _): !comparison.isOrder || comparator.kind == .enumeration
        // PostgreSQL writes jsonb without escapes for characters beyond ASCII. In json, it may fail to convert such an
        // escape.
        case .field(_, _, let isBinary): isBinary
        case .hasName, .contains, .isContained, .overlaps, .concatenate, .relabel, .withoutBlanks, .arrayLength,
            .cardinality, .failure, .moment:
            true
        case .compareFloats, .compareMoments, .like, .arithmetic, .shiftMoment, .parse, .parseJSON, .truthWord, .name,
            .narrow, .float, .midnight, .zoneOfUTC, .fold, .split, .part, .length, .trim, .replace, .startsWith:
            false
        }
    }
}

extension TypeFacts {
    /// True if all values of the type are written in ASCII, which is the same in every encoding.
    var isWrittenInASCII: Bool {
        switch shape {
        case .array(let element): element.isWrittenInASCII
        case .base: TypeFacts.writtenInASCII.contains(oid)
        case .enumeration, .other: false
        }
    }

    private static let writtenInASCII: Set<UInt32> = [
        TypeOID.bool, TypeOID.bytea, TypeOID.int2, TypeOID.int4, TypeOID.int8, TypeOID.oid, TypeOID.numeric,
        TypeOID.float4, TypeOID.float8, TypeOID.uuid, TypeOID.date, TypeOID.time, TypeOID.timetz, TypeOID.timestamp,
        TypeOID.timestamptz, TypeOID.interval, TypeOID.inet, TypeOID.cidr, TypeOID.macaddr, TypeOID.macaddr8,
        TypeOID.bit, TypeOID.varbit,
    ]
}
