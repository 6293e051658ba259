/// The stated maximum of everything the event log holds in memory or writes.
/// (To be moved to Diagnostics' `Limits` once both are in the house.)
public enum EventLogLimits {
    /// Unsynced bytes are held in memory until they are durable; at this many they are written through.
    public static let batchBytes = 4 << 20
    /// One entry's payload. Larger than any value PostgreSQL can hold (1 GiB), and small enough that a length word
    /// from damaged bytes is refused before memory is asked for.
    public static let payloadBytes = 0x7fff_ff00
    /// Key hashes remembered for a segment's filter (8 bytes each); with more, its filter matches everything.
    public static let keysPerSegment = 2 << 20
    /// Distance of the sparse index's points.
    public static let indexStride: UInt64 = 64 << 10
    /// What a reader reads at once, and keeps between entries.
    public static let readBytes = 1 << 20
    /// What a scan of whole segments (recovery, verification) reads at once.
    public static let scanBytes = 4 << 20
    /// Steps in which a spare segment is filled with zeros.
    public static let zeroFillBytes = 1 << 20
    /// A sidecar larger than this is not believed.
    public static let sidecarBytes = 256 << 20
    /// A segment that took longer to fill than this leaves the disk time to fill the next one with zeros.
    public static let calmFillMicroseconds: Int64 = 5_000_000
}
