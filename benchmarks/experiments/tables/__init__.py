"""The estimator beside boosted trees and a deep ensemble on tables."""
