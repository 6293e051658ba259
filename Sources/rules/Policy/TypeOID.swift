/// Oids of built-in types whose values the hub compares itself (from pg_type.dat; PostgreSQL never renumbers them).
enum TypeOID {
    static let bool: UInt32 = 16
    static let bytea: UInt32 = 17
    static let char: UInt32 = 18
    static let name: UInt32 = 19
    static let json: UInt32 = 114
    static let textArray: UInt32 = 1009
    static let int8: UInt32 = 20
    static let int2: UInt32 = 21
    static let int4: UInt32 = 23
    static let text: UInt32 = 25
    static let oid: UInt32 = 26
    static let cidr: UInt32 = 650
    static let float4: UInt32 = 700
    static let float8: UInt32 = 701
    static let macaddr8: UInt32 = 774
    static let macaddr: UInt32 = 829
    static let inet: UInt32 = 869
    static let bpchar: UInt32 = 1042
    static let varchar: UInt32 = 1043
    static let date: UInt32 = 1082
    static let time: UInt32 = 1083
    static let timestamp: UInt32 = 1114
    static let timestamptz: UInt32 = 1184
    static let interval: UInt32 = 1186
    static let timetz: UInt32 = 1266
    static let bit: UInt32 = 1560
    static let varbit: UInt32 = 1562
    static let numeric: UInt32 = 1700
    static let uuid: UInt32 = 2950
    static let jsonb: UInt32 = 3802

    /// Lowest oid of types that users create.
    static let firstOfUsers: UInt32 = 16384
}
