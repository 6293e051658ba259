import Bytes

/// Something that the log has beside the changes, several in one entry.
public protocol LogNote: Sendable {
    /// What it takes in its stored form.
    var byteCount: Int { get }
    /// Every part of it fits its length.
    var isStorable: Bool { get }
    /// By what it is looked for.
    var keys: [UInt64] { get }
    /// There may be so much of it that others need room beside it.
    var isBulk: Bool { get }
    /// Others are more urgent: it is not taken where they might find no room then.
    var yields: Bool { get }
    static func encode(_ notes: some Collection<Self>, to writer: inout ByteWriter)
}

extension LogNote {
    public var isBulk: Bool { false }
    public var yields: Bool { isBulk }
}

extension PresenceMark: LogNote {
    public var isStorable: Bool { PresenceCodec.isStorable(self) }
    public var keys: [UInt64] { [] }

    public static func encode(_ marks: some Collection<PresenceMark>, to writer: inout ByteWriter) {
        PresenceCodec.encode(marks, to: &writer)
    }
}

extension LedgerNote: LogNote {
    public var byteCount: Int { LedgerCodec.byteCount(of: self) }
    public var isStorable: Bool { LedgerCodec.isStorable(self) }

    public var isBulk: Bool { event == .delivered }

    /// Who stands there is said again later. Behind a storm all are noted anew, and would leave no room for ends, which would be
    /// missed, for which all would have to be noted anew.
    public var yields: Bool { isBulk || event == .stands }

    public var keys: [UInt64] {
        if event == .delivered {
            return [RowKey.deliveries]
                + DeliveryBlock.regions(of: deliveries).map { RowKey.deliveries(region: $0) }
        }
        return [RowKey.ledger, RowKey.ledger(session: session)] + (event == .missed ? [RowKey.missed] : [])
            + (subject.isEmpty ? [] : [RowKey.ledger(subject: subject)])
    }

    public static func encode(_ notes: some Collection<LedgerNote>, to writer: inout ByteWriter) {
        LedgerCodec.encode(notes, to: &writer)
    }
}
