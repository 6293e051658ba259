import Diagnostics
import Policy

extension FilterCheck.Settings {
    /// Returns the settings for predicates that are made of policies and memberships.
    public static func ofPolicies(_ snapshot: CatalogSnapshot?) -> FilterCheck.Settings {
        FilterCheck.Settings(
            maximumListElements: Limits.maximumMembershipKeys, maximumKeys: Limits.maximumMembershipKeys,
            maximumWork: Limits.maximumFilterWork, text: snapshot?.text ?? .unknown)
    }
}
