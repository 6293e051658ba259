/// Types that every PostgreSQL database has, by OID: their names in the catalog, and the conversion of their values to
/// JSON.
///
/// OIDs of built-in types never change between releases (src/include/catalog/pg_type.dat).
public enum BuiltInType {
    /// Returns the catalog name of a type, or nil for a user-defined type, which PostgreSQL names in a Type message.
    public static func name(of oid: UInt32) -> String? { names[oid] }

    private static let names: [UInt32: String] = [
        16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 22: "int2vector", 23: "int4",
        24: "regproc", 25: "text", 26: "oid", 27: "tid", 28: "xid", 29: "cid", 30: "oidvector", 114: "json",
        142: "xml", 143: "_xml", 194: "pg_node_tree", 199: "_json", 271: "_xid8", 600: "point", 601: "lseg",
        602: "path", 603: "box", 604: "polygon", 628: "line", 629: "_line", 650: "cidr", 651: "_cidr",
        700: "float4", 701: "float8", 718: "circle", 719: "_circle", 774: "macaddr8", 775: "_macaddr8",
        790: "money", 791: "_money", 829: "macaddr", 869: "inet", 1000: "_bool", 1001: "_bytea", 1002: "_char",
        1003: "_name", 1005: "_int2", 1006: "_int2vector", 1007: "_int4", 1008: "_regproc", 1009: "_text",
        1010: "_tid", 1011: "_xid", 1012: "_cid", 1013: "_oidvector", 1014: "_bpchar", 1015: "_varchar",
        1016: "_int8", 1017: "_point", 1018: "_lseg", 1019: "_path", 1020: "_box", 1021: "_float4",
        1022: "_float8", 1027: "_polygon", 1028: "_oid", 1033: "aclitem", 1034: "_aclitem", 1040: "_macaddr",
        1041: "_inet", 1042: "bpchar", 1043: "varchar", 1082: "date", 1083: "time", 1114: "timestamp",
        1115: "_timestamp", 1182: "_date", 1183: "_time", 1184: "timestamptz", 1185: "_timestamptz",
        1186: "interval", 1187: "_interval", 1231: "_numeric", 1266: "timetz", 1270: "_timetz", 1560: "bit",
        1561: "_bit", 1562: "varbit", 1563: "_varbit", 1700: "numeric", 1790: "refcursor", 2201: "_refcursor",
        2202: "regprocedure", 2203: "regoper", 2204: "regoperator", 2205: "regclass", 2206: "regtype",
        2207: "_regprocedure", 2208: "_regoper", 2209: "_regoperator", 2210: "_regclass", 2211: "_regtype",
        2949: "_txid_snapshot", 2950: "uuid", 2951: "_uuid", 2970: "txid_snapshot", 3220: "pg_lsn",
        3221: "_pg_lsn", 3614: "tsvector", 3615: "tsquery", 3642: "gtsvector", 3643: "_tsvector",
        3644: "_gtsvector", 3645: "_tsquery", 3734: "regconfig", 3735: "_regconfig", 3769: "regdictionary",
        3770: "_regdictionary", 3802: "jsonb", 3807: "_jsonb", 3904: "int4range", 3905: "_int4range",
        3906: "numrange", 3907: "_numrange", 3908: "tsrange", 3909: "_tsrange", 3910: "tstzrange",
        3911: "_tstzrange", 3912: "daterange", 3913: "_daterange", 3926: "int8range", 3927: "_int8range",
        4072: "jsonpath", 4073: "_jsonpath", 4089: "regnamespace", 4090: "_regnamespace", 4096: "regrole",
        4097: "_regrole", 4191: "regcollation", 4192: "_regcollation", 4451: "int4multirange",
        4532: "nummultirange", 4533: "tsmultirange", 4534: "tstzmultirange", 4535: "datemultirange",
        4536: "int8multirange", 5038: "pg_snapshot", 5039: "_pg_snapshot", 5069: "xid8", 6150: "_int4multirange",
        6151: "_nummultirange", 6152: "_tsmultirange", 6153: "_tstzmultirange", 6155: "_datemultirange",
        6157: "_int8multirange",
    ]

    /// Returns the element type of an array type, or nil if the type is not an array.
    public static func element(of oid: UInt32) -> UInt32? { arrayElements[oid] }

    /// Returns the conversion of a value's text to JSON. It depends only on the type, so look it up once for each
    /// column.
    public static func rendering(of oid: UInt32) -> JSONRendering {
        if let element = arrayElements[oid] { return .array(of: scalar(element).nested) }
        return .scalar(scalar(oid))
    }

    private static func scalar(_ oid: UInt32) -> ScalarRendering {
        switch oid {
        case 16: .boolean
        case 20, 21, 23: .integer
        case 700, 701, 1700: .number
        case 114, 3802: .json
        case 1114: .timestamp
        case 1184: .timestampWithZone
        case 17: .bytes
        default: .text
        }
    }

    private static let arrayElements: [UInt32: UInt32] = {
        var byName: [String: UInt32] = [:]
        for (oid, name) in names { byName[name] = oid }
        var elements: [UInt32: UInt32] = [:]
        for (oid, name) in names where name.hasPrefix("_") {
            // A box array separates its elements by semicolons, so it stays the text that PostgreSQL wrote.
            guard name != "_box", let element = byName[String(name.dropFirst())] else { continue }
            elements[oid] = element
        }
        return elements
    }()
}
