import Bytes

/// Record that the log stores beside the changes. One entry of the log contains several.
public protocol LogNote: Sendable {
    /// Length of the stored form in bytes.
    var byteCount: Int { get }
    /// True if every field of the note fits the length field that the stored form has for it.
    var isStorable: Bool { get }
    /// Keys by which readers find the note.
    var keys: [UInt64] { get }
    /// True if notes of this kind can be so large that the log gives them an allowance of bytes separate from that of
    /// other notes.
    var isBulk: Bool { get }
    /// True if other notes are more urgent. The log's queue refuses this note when it is half full, to leave room for
    /// them.
    var yields: Bool { get }
    /// Returns a note that stands in the log for this note and the `count - 1` dropped after it; nil if whoever recorded
    /// them is told and sees to it.
    func standIn(for count: Int) -> Self?
    static func encode(_ notes: some Collection<Self>, to writer: inout ByteWriter)
}

extension LogNote {
    public var isBulk: Bool { false }
    public var yields: Bool { isBulk }
    public func standIn(for count: Int) -> Self? { nil }
}

extension PresenceMark: LogNote {
    public var isStorable: Bool { PresenceCodec.isStorable(self) }
    public var keys: [UInt64] { [] }

    public func standIn(for count: Int) -> PresenceMark? {
        PresenceMark(
            event: .missing, isPrivate: false, time: time, topic: [], key: [], ref: [],
            meta: Array(#"{"count":\#(count)}"#.utf8))
    }

    public static func encode(_ marks: some Collection<PresenceMark>, to writer: inout ByteWriter) {
        PresenceCodec.encode(marks, to: &writer)
    }
}

extension LedgerNote: LogNote {
    public var byteCount: Int { LedgerCodec.byteCount(of: self) }
    public var isStorable: Bool { LedgerCodec.isStorable(self) }

    public var isBulk: Bool { event == .delivered }

    /// True for recorded deliveries and for `stands` notes, which the hub repeats later. After notes were lost, the hub
    /// notes all its channels again. If these notes did not yield, they would leave no room for notes of channels that
    /// end. Their loss would make the hub note all channels again.
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
