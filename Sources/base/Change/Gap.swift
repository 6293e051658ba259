import Bytes

/// Loss of changes before they reached the log: the reason, and the positions before and after it. The log records a
/// gap as an entry and continues in another epoch, so that readers do not take the two sides for one history.
public struct Gap: Sendable, Equatable {
    public enum Reason: String, Sendable, CaseIterable {
        case slotMissing = "slot_missing"
        case slotInvalidated = "slot_invalidated"
        case slotAdvanced = "slot_advanced"
        case databaseRestored = "database_restored"
        case otherDatabase = "other_database"
        case publicationRecreated = "publication_recreated"
        /// A slot exists that a hub has used, but the log that belongs to the slot is missing.
        case logMissing = "log_missing"
        /// The identity of the database that the log followed is no longer known.
        case lineageDamaged = "lineage_damaged"
        /// An operator gave up a damaged stretch of the log.
        case logDamaged = "log_damaged"

        /// True if later changes may belong to another database, or to an older state of the same one. OIDs may then
        /// have other meanings.
        public var mayChangeDatabase: Bool {
            switch self {
            case .databaseRestored, .otherDatabase, .logMissing, .lineageDamaged: true
            case .slotMissing, .slotInvalidated, .slotAdvanced, .publicationRecreated, .logDamaged:
                false
            }
        }
    }

    public var reason: Reason
    /// Position up to which the log is complete before the gap.
    public var from: LSN
    /// Position at which the log continues after the gap.
    public var to: LSN

    public init(reason: Reason, from: LSN, to: LSN) {
        self.reason = reason
        self.from = from
        self.to = to
    }
}

/// Stored form of a gap: version u8 · from u64 · to u64 · reason.
public enum GapCodec {
    public static func encode(_ gap: Gap, to writer: inout ByteWriter) {
        writer.append(UInt8(1))
        writer.append(little: gap.from.rawValue)
        writer.append(little: gap.to.rawValue)
        writer.append(gap.reason.rawValue)
    }

    public static func decode(_ bytes: RawSpan) throws(ByteError) -> Gap {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == 1 else { throw ByteError(expected: "a gap of version 1", offset: 0) }
        let from = LSN(try reader.littleUInt64())
        let to = LSN(try reader.littleUInt64())
        guard let reason = Gap.Reason(rawValue: reader.rest().text) else {
            throw ByteError(expected: "the reason of a gap", offset: 17)
        }
        return Gap(reason: reason, from: from, to: to)
    }
}
