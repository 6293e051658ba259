import Bytes

/// Policies, rights or tables may have changed before the changes that follow: whoever judges these has to read the
/// catalog first.
public struct CatalogMark: Sendable, Equatable {
    /// The transaction in which this came to light: what can see it, sees what changed. Zero: no matter which.
    public var xid: UInt32
    /// The table concerned; zero is any.
    public var table: UInt32

    public init(xid: UInt32, table: UInt32) {
        self.xid = xid
        self.table = table
    }
}

/// The stored form of a mark: version u8 · transaction u32 · table u32.
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
