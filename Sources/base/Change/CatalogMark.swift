import Bytes

/// Mark in the log: policies, rights or tables may have changed before the next changes in the log. A reader of the log
/// must read PostgreSQL's catalog before it evaluates policies for those changes.
public struct CatalogMark: Sendable, Equatable {
    /// Number of the transaction that revealed the catalog's change. A snapshot that includes this transaction shows
    /// the changed catalog. 0 if any snapshot does.
    public var xid: UInt32
    /// OID of the table whose definition or policies may have changed; 0 for any table.
    public var table: UInt32

    public init(xid: UInt32, table: UInt32) {
        self.xid = xid
        self.table = table
    }
}

/// Stored form of a catalog mark: version u8 · transaction u32 · table u32.
public enum CatalogMarkCodec {
    public static func encode(_ mark: CatalogMark, to writer: inout ByteWriter) {
        writer.append(UInt8(1))
        writer.append(little: mark.xid)
        writer.append(little: mark.table)
    }

    public static func decode(_ bytes: RawSpan) throws(ByteError) -> CatalogMark {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == 1 else { throw ByteError(expected: "a catalog mark of version 1", offset: 0) }
        let xid = try reader.littleUInt32()
        return CatalogMark(xid: xid, table: try reader.littleUInt32())
    }
}
