import Bytes
import Change

/// A change of which only that it was there is left: somebody had its values removed.
public struct ForgottenChange: Sendable, Hashable {
    public let old: ForgottenMark?
    public let new: ForgottenMark?

    init(_ change: borrowing Change) {
        (old, new) = change.forgottenMarks
    }

    /// The day it was forgotten, as days since 1970; nil where there was no room to say so.
    public var day: UInt16? { (new ?? old)?.day }

    /// `2026-11-26`
    public var date: String? { day.map { String(TimeText.write(Int64($0) * 86_400_000_000, digits: 0).prefix(10)) } }

    /// Whether it may be of the row with this key: never falsely not.
    func fits(_ keyHash: UInt64) -> Bool {
        let marks = [old, new].compactMap { $0 }
        return marks.isEmpty || marks.contains { $0.fits(keyHash) }
    }
}
