import Bytes

/// Record that the log stores beside the changes, several in one entry.
public protocol LogNote: Sendable {
    /// Length of the stored form in bytes.
    var byteCount: Int { get }
    /// True if every part fits the length field that the stored form has for it.
    var isStorable: Bool { get }
    /// Keys by which readers find the note.
    var keys: [UInt64] { get }
    /// True if notes of this kind can be so large that other notes need room beside them.
    var isBulk: Bool { get }
    /// True if other notes are more urgent: this note is refused where it might leave no room for them.
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

    /// True for bulk and for `stands` notes, which are repeated later. After notes were missed, all
    /// channels are noted again. Without yielding, these notes would leave no room for ends; missed ends
    /// would cause all to be noted yet again.
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
