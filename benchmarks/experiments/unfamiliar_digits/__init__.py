"""Digits that a network has not been trained for: does its uncertainty say so?"""
